"""Metadata in builds and updates: what is published, what it costs, and what becomes of wrong values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.indexing.changed_documents import DocumentSelection
from hirag_dist.storage import layout
from hirag_dist.storage.snapshot.documents import list_documents
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from tests.filtered_builds import METADATA, build_records, records
from tests.leaky_builds import corpus, script
from tests.toy_builds import LAYER_0_ALONE, Bench, rows

DOCUMENTS = records(corpus(1)[:6])


def values(snapshot: Snapshot) -> dict[str, Any]:
    return {document.title: document.metadata for document in list_documents(snapshot)}


def changed(number: int, **given: object) -> list[Mapping[str, Any]]:
    return [row | given if row["number"] == number else row for row in DOCUMENTS]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, base_id="")


def test_changed_metadata_is_a_new_snapshot_without_a_call(bench: Bench) -> None:
    first = build_records(bench, DOCUMENTS, **LAYER_0_ALONE)
    again = build_records(bench, DOCUMENTS, **LAYER_0_ALONE)
    assert again.manifest.snapshot_id == first.manifest.snapshot_id
    second = build_records(bench, changed(2, kind="other"), **LAYER_0_ALONE)
    assert second.manifest.snapshot_id != first.manifest.snapshot_id
    assert second.manifest.notes["update"]["other_changes"] == ["metadata"]
    assert not bench.model.requests
    differ = {name for name, digest in second.manifest.content.items() if digest != first.manifest.content[name]}
    assert differ - {"layers"} == {layout.DOCUMENT_METADATA}  # an update notes why the hierarchy ends
    assert values(second)[DOCUMENTS[2]["title"]]["kind"] == "other"
    back = build_records(bench, DOCUMENTS, **LAYER_0_ALONE)
    assert back.manifest.snapshot_id == first.manifest.snapshot_id, "the former snapshot is the result"


@pytest.mark.integration  # it starts no process, but updates indexes
def test_fields_that_are_declared_later_equal_those_of_a_first_build(bench: Bench, tmp_path: Path) -> None:
    plain = build_records(bench, DOCUMENTS, metadata={})
    assert not set(layout.METADATA_TABLES) & plain.manifest.content.keys()
    later = build_records(bench, DOCUMENTS)
    fresh = build_records(Bench(tmp_path / "fresh"), DOCUMENTS)
    for name in (*layout.METADATA_TABLES, *layout.LABEL_TABLES):
        assert later.manifest.content[name] == fresh.manifest.content[name]
    without = build_records(bench, DOCUMENTS, metadata={})
    assert without.manifest.snapshot_id == plain.manifest.snapshot_id


@pytest.mark.integration  # it starts no process, but updates indexes
def test_values_of_added_and_removed_documents_come_and_go(bench: Bench) -> None:
    build_records(bench, DOCUMENTS[:5])
    path = bench.folder / "more.jsonl"
    path.write_text(json.dumps(DOCUMENTS[5] | {"even": "perhaps"}))
    bench.result = bench.run_work(lambda build: build.add([str(path)]), script, metadata=METADATA)
    added = open_snapshot(bench.store, bench.result.manifest.snapshot_id)
    assert len(rows(added, layout.DOCUMENT_METADATA)) == 6
    assert "even" not in values(added)[DOCUMENTS[5]["title"]]
    assert [(row["stage"], row["unit_id"]) for row in rows(added, "rejects")] == [("metadata", "more.jsonl")]
    selection = DocumentSelection(sources=("more.jsonl",))
    bench.result = bench.run_work(lambda build: build.remove(selection), script, metadata=METADATA)
    removed = open_snapshot(bench.store, bench.result.manifest.snapshot_id)
    assert len(rows(removed, layout.DOCUMENT_METADATA)) == 5
    assert not rows(removed, "rejects")


def test_a_wrong_value_is_a_dead_letter_and_the_document_is_kept(bench: Bench) -> None:
    snapshot = build_records(bench, changed(2, published="soon", tags={"a": 1}), **LAYER_0_ALONE)
    assert snapshot.manifest.counts["documents"] == 6
    (letter,) = rows(snapshot, "rejects")
    assert (letter["stage"], letter["unit_id"]) == ("metadata", "corpus.jsonl#2")
    assert "field published: 'soon' is no date" in letter["reason"]
    assert "field tags: {'a': 1} is no string" in letter["reason"]
    assert not snapshot.manifest.complete
    assert values(snapshot)[DOCUMENTS[2]["title"]].keys() == {"number", "kind", "even"}
