"""Documents of a snapshot and what comes from each, against counts made by loops."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hirag_dist.storage.snapshot.documents import list_documents
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.types import ChatRequest
from tests.toy_builds import Bench, between, rows, task_of

TEXTS = ["sun moon stars", "moon sea sand", "frost", "sun sea"]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    def refuses_frost(request: ChatRequest) -> str | None:
        return "" if task_of(request) == "extract-graph" and between(request, "text") == "frost" else None

    return Bench(tmp_path_factory.mktemp("documents")).build(TEXTS, refuses_frost)


def test_the_counts_of_every_document(snapshot: Snapshot) -> None:
    found = list_documents(snapshot)
    assert [each.uri for each in found] == ["0.txt", "1.txt", "2.txt", "3.txt"]
    chunks = rows(snapshot, "chunks")
    for each in found:
        own = {row["chunk_id"] for row in chunks if row["document_id"] == each.document_id}
        assert each.n_chunks == len(own)
        assert each.n_tokens == sum(row["n_tokens"] for row in chunks if row["chunk_id"] in own)
        for name in ("entities", "relations"):
            stated = [row for row in rows(snapshot, name) if own & set(row["chunk_ids"])]
            assert getattr(each, f"n_{name}") == len(stated)
        assert each.n_dead_letters == sum(row["unit_id"] in own for row in rows(snapshot, "rejects"))
    assert [each.n_dead_letters for each in found] == [0, 0, 1, 0]
    assert [each.n_entities for each in found] == [3, 3, 0, 2]


def test_a_dead_letter_about_metadata_is_its_records(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    records = ({"text": "sun moon", "day": 1}, {"text": "sea sand", "day": "often"}, {"text": "sun sea", "day": "x"})
    bench.folder.joinpath("corpus.jsonl").write_text("\n".join(map(json.dumps, records)))
    bench.run_on([str(tmp_path / "corpus.jsonl")], metadata={"fields": {"day": {"type": "number"}}})
    snapshot = open_snapshot(bench.store)
    assert [each.n_dead_letters for each in list_documents(snapshot)] == [0, 1, 1]
    assert [each.record for each in list_documents(snapshot, ("corpus.jsonl, record 2",))] == [1]
