"""Updates of documents with labels: what a caller lost sight of leaves no trace, whether or not there is a budget."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.text.ids import entity_id, text_keys
from hirag_dist.core.text.normalize import name_key
from hirag_dist.retrieval.search import MODES
from hirag_dist.storage.layout import LABEL_TABLES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query
from tests.labelled_builds import build
from tests.leaky_builds import HIDDEN, NOBODY, QUESTIONS, Documents, all_text, corpus, engine_of, public, script, topics
from tests.toy_builds import Bench

pytestmark = pytest.mark.integration  # it starts no process, but builds forty indexes
BUDGETS = {"paid": {"max_ratio": 1000}, "unpaid": {"max_ratio": 0, "staleness": 1}}
ASKED = [*QUESTIONS, "termaa", "termbb", "termcc"]


def documents() -> Documents:
    """Return documents of which a third is hidden, and public ones of topics of their own."""
    return [*corpus(1), *((text.replace("word", "term"), labels) for text, labels in topics(1) if not labels)]


def without_labels(found: Documents) -> Documents:
    return [(text, []) for text, _ in found]


def with_words(found: Documents) -> Documents:
    """Return the documents with hidden words in public documents, which are then labelled too."""
    return [
        (f"{text} {HIDDEN}new{at}", ["secret"]) if at % 7 == 1 else (text, own) for at, (text, own) in enumerate(found)
    ]


HISTORIES: dict[str, list[Documents]] = {
    "labels come": [without_labels(documents()), documents()],
    "labels come for some": [
        [(text, [] if at % 2 else own) for at, (text, own) in enumerate(documents())],
        documents(),
    ],
    "documents come": [public(documents()), documents()],
    "documents go": [documents() + with_words(documents())[1::7], documents()],
    "documents are edited": [with_words(without_labels(documents())), documents()],
    "labels come and go": [documents(), without_labels(documents()), documents()],
}


@pytest.fixture(scope="module", params=[(history, budget) for history in HISTORIES for budget in BUDGETS], ids="-".join)
def updated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    """Return an index of `documents` that came to be by updates."""
    history, budget = request.param
    bench = Bench(tmp_path_factory.mktemp("living"), base_id="")
    for now in HISTORIES[history]:
        snapshot = build(bench, now, script, update=BUDGETS[budget])
    assert bench.result.update is not None
    return snapshot


def hidden_keys(snapshot: Snapshot) -> set[int]:
    """Return the keys of texts that are in hidden documents alone."""
    own = snapshot.table("documents", ["document_id", "labels"])
    secret = own.filter(pc.greater(pc.list_value_length(own["labels"]), 0))["document_id"]
    chunks = snapshot.table("chunks", ["chunk_id", "document_id"])
    is_hidden = pc.is_in(chunks["document_id"], value_set=secret.combine_chunks())
    seen = text_keys(chunks.filter(pc.invert(is_hidden))["chunk_id"]).tolist()
    return set(text_keys(chunks.filter(is_hidden)["chunk_id"]).tolist()) - set(seen)


def sources_of(snapshot: Snapshot) -> dict[str, set[int]]:
    """Return the texts that each summary entity and each report derives from, by their ids."""
    found: dict[str, set[int]] = {}
    for row in snapshot.table("summaries").to_pylist():
        for entity in row["entities"]:
            own = entity_id(row["layer"] + 1, name_key(entity["name"]))
            found.setdefault(own, set()).update(row["sources"])
    for row in snapshot.table("report_inputs").to_pylist():
        found[row["community_id"]] = set(row["sources"])
    return found


async def test_a_caller_sees_no_summary_and_no_report_of_text_out_of_reach(updated: Snapshot) -> None:
    engine = engine_of(updated)
    sources, hidden = sources_of(updated), hidden_keys(updated)
    assert len(hidden) > 5
    seen: set[str] = set()
    for question in ASKED:
        found = await engine.retrieve(Query(question, "global", top_n=100, top_c=100, reach=NOBODY))
        seen |= {item.community_id for item in found.communities}
        seen |= {item.entity_id for item in found.local if item.layer}
    assert not [own for own in seen if sources.get(own, set()) & hidden]
    assert seen & set(sources), "else there was nothing to see"


@pytest.mark.parametrize("mode", MODES)
async def test_no_trace_in_any_mode(updated: Snapshot, mode: str) -> None:
    engine = engine_of(updated)
    for question in QUESTIONS:
        found = await engine.retrieve(Query(question, mode, top_n=40, reach=NOBODY))
        assert HIDDEN not in all_text(found)
    everything = await engine.retrieve(Query(QUESTIONS[-2], mode, top_n=40))
    assert HIDDEN in all_text(everything), "else there was nothing to leak"


def test_what_separates_the_documents_is_that_of_a_fresh_index(updated: Snapshot, tmp_path: Path) -> None:
    fresh = build(Bench(tmp_path), documents(), script)
    for name in ("documents", "chunks", "mentions", "relation_mentions", *LABEL_TABLES[:2]):
        assert rows_of(updated, name) == rows_of(fresh, name), name


def rows_of(snapshot: Snapshot, name: str) -> list[dict[str, Any]]:
    """Return the rows of a table, without the places of documents in their file."""
    table: pa.Table = snapshot.table(name)
    return table.drop_columns([column for column in ("uri", "record") if column in table.column_names]).to_pylist()
