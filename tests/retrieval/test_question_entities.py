"""Entities that a question names, in the local level, over the snapshot made by hand of `test_engine`.

Its names are A to E in layer 0, and S in layer 1, which no question names. The vector of a question is that of e.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import BY_NAME, BY_VECTOR, Query
from tests.leaky_builds import HIDDEN, NOBODY, Indexes, corpus
from tests.retrieval.test_engine import AXES, Bench, ids
from tests.retrieval.test_engine import snapshot as snapshot

PAPER = RetrievalConfig(fidelity="paper", community_level="leaf")


async def asked(bench: Bench, question: str, mode: str = "hirag", **more: Any) -> Any:
    return await bench.ask(question, mode, **{"vector": np.array(AXES["e"], np.float32), "top_n": 8} | more)


@pytest.mark.parametrize("mode", ["hirag", "local", "nobridge"])
async def test_named_entities_come_first_in_the_order_of_the_question(snapshot: Snapshot, mode: str) -> None:
    found = await asked(Bench(snapshot), "How do D, S and B differ?", mode)
    assert ids(found.local) == ["d", "b", "e", "a", "c", "S"]
    assert [item.matched for item in found.local] == [BY_NAME] * 2 + [BY_VECTOR] * 4
    assert [item.score for item in found.local] == pytest.approx([0, 0, 1, 0, 0, 0])
    assert [found.context_refs[ref] for ref in ("E1", "E2", "E3")] == ["d", "b", "e"]
    plain = await asked(Bench(snapshot, PAPER), "How do D, S and B differ?", mode)
    assert ids(plain.local) == ["e", "a", "b", "c", "d", "S"]
    assert {item.matched for item in plain.local} == {BY_VECTOR}


@pytest.mark.parametrize(
    ("question", "top_n", "expected"),
    [
        ("Who met D, D and d?", 8, "deabcS"),
        ("who met d or B?", 4, "beac"),
        ("who met d or b?", 4, "deab"),
        ("who met D?", 3, "eab"),
    ],
)
async def test_how_many_are_named(snapshot: Snapshot, question: str, top_n: int, expected: str) -> None:
    found = await asked(Bench(snapshot), question, top_n=top_n)
    assert ids(found.local) == [*expected]
    assert len(found.local) <= top_n


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Indexes:
    return Indexes(tmp_path_factory)


@pytest.mark.parametrize("mode", ["hirag", "local", "nobridge", "flat"])
async def test_a_hidden_entity_is_not_found_by_its_name_and_takes_no_place(made: Indexes, mode: str) -> None:
    engine = made(corpus(1))
    question = f"{HIDDEN}aa and wordaa, {HIDDEN}ab and {HIDDEN}ac"
    asked = Query(question, mode, top_n=8)
    everything = await engine.retrieve(asked)
    assert [item.name for item in everything.local[:2]] == [f"{HIDDEN}aa", "wordaa"]
    assert [item.matched for item in everything.local[:3]] == [BY_NAME, BY_NAME, BY_VECTOR]
    found = await engine.retrieve(replace(asked, reach=NOBODY))
    assert [item.name for item in found.local if item.matched == BY_NAME] == ["wordaa"]
    assert not any(item.name.startswith(HIDDEN) for item in found.local)
    secret = await engine.retrieve(Query(f"wordaa {HIDDEN}aa {HIDDEN}ab", mode, top_n=8, labels=("secret",)))
    assert all(item.name.startswith(HIDDEN) or "wordaa" in item.name for item in secret.local[:2])
