"""Records chosen by what they add, over the snapshot made by hand of `test_engine` and over one with labels."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query
from tests.leaky_builds import HIDDEN, NOBODY, QUESTIONS, Indexes, all_text, corpus, public, topics
from tests.retrieval.test_engine import Bench, ids
from tests.retrieval.test_engine import snapshot as snapshot

COVERAGE = RetrievalConfig(selection="coverage")


async def test_an_entity_like_a_chosen_one_gives_way(snapshot: Snapshot) -> None:
    """The question is between a and c; b is between them too, and nearest to a."""
    near = np.array([0.75, 0.66, 0, 0, 0], np.float32)
    assert ids((await Bench(snapshot).ask("?", top_n=2, vector=near)).local) == ["b", "a"]
    found = await Bench(snapshot, COVERAGE).ask("?", top_n=2, vector=near)
    assert ids(found.local) == ["b", "c"]
    assert {found.context_refs[ref] for ref in ("E1", "E2")} == {"b", "c"}
    assert "selection" in found.timings_ms


async def test_reports_by_what_they_add(snapshot: Snapshot) -> None:
    """Of the local entities left holds a and b, right c."""
    found = await Bench(snapshot, COVERAGE).ask("c?", "global", top_n=3, top_c=1)
    assert ids((await Bench(snapshot).ask("c?", "global", top_n=3, top_c=1)).communities, "community_id") == ["left"]
    assert ids(found.communities, "community_id") == ["right"], "it holds c itself, left only what is like it"


@pytest.mark.parametrize("question", ["a?", "c?", "d?", "S?"])
async def test_passages_and_paths_stay_the_same(snapshot: Snapshot, question: str) -> None:
    plain, found = await Bench(snapshot).ask(question, top_n=2), await Bench(snapshot, COVERAGE).ask(question, top_n=2)
    for part in ("key_entities", "paths", "triples", "sources"):
        assert getattr(found, part) == getattr(plain, part)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory)


def choosing(engine: QueryEngine) -> QueryEngine:
    return engine.with_settings(engine._config.model_copy(update={"selection": "coverage"}))


@pytest.mark.parametrize("mode", ["hirag", "global"])
async def test_what_is_hidden_has_no_part_in_the_choice(made: Indexes, mode: str) -> None:
    engine = choosing(made(corpus(1)))
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, mode, top_n=8, reach=NOBODY))
        assert found.context_refs
        assert HIDDEN not in all_text(found)
    documents = topics(1)
    whole, other = (choosing(made(each, max_layers=0)) for each in (documents, public(documents)))
    for question in QUESTIONS:
        found = await whole.retrieve(Query(question, mode, top_n=4, reach=NOBODY))
        wanted = await other.retrieve(Query(question, mode, top_n=4))
        assert found.context == wanted.context
        assert [asdict(item) | {"score": 0} for item in found.local] == [
            asdict(item) | {"score": 0} for item in wanted.local
        ]
