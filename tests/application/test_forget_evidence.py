"""Traces of removed documents: all of their versions, and nothing that a remaining document has too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hirag_dist.application.forget_evidence import find_removed
from hirag_dist.application.forget_verification import verify_removed
from hirag_dist.config.model import Config
from hirag_dist.core.text.ids import text_key
from tests.removal_builds import KEPT, REMOVED, RemovalBench

SHARED = "Joseph Jacquard built a loom in Lyon that was driven by punched cards."


@pytest.fixture
def bench(tmp_path: Path) -> RemovalBench:
    config = {"execution": {"executor": "inline"}, "clustering": {"target_size": 4}}
    return RemovalBench(tmp_path, Config.model_validate(config))


def clean(bench: RemovalBench, *ids: str) -> bool:
    removed = find_removed(bench.store, ids)
    return verify_removed(bench.store, bench.config, removed, snapshot_only=True).clean


def test_every_version_of_a_document_counts(bench: RemovalBench) -> None:
    first = bench.build(KEPT | {"patient.txt": "Wilhelmina Throckmorton is now in Bremen for a while."}).snapshot_id
    early = bench.document_id("patient.txt")
    second = bench.build(KEPT | REMOVED).snapshot_id
    late = bench.document_id("patient.txt")
    bench.build(KEPT)
    removed = find_removed(bench.store, [late])
    assert (removed.ids, removed.unknown) == ({early, late}, frozenset())
    assert removed.snapshots == tuple(sorted([first, second]))
    assert removed.passages.within("wilhelmina throckmorton is now in bremen for a while")
    assert find_removed(bench.store, ["patient.txt"]).ids == removed.ids


def test_a_version_that_is_served_is_not_removed(bench: RemovalBench) -> None:
    bench.build(KEPT | {"patient.txt": "Wilhelmina Throckmorton is now in Bremen for a while."})
    early = bench.document_id("patient.txt")
    bench.build(KEPT | REMOVED)
    removed = find_removed(bench.store, [early])
    assert removed.ids == {early}
    assert clean(bench, early)
    assert not clean(bench, bench.document_id("patient.txt"))


def test_what_a_remaining_document_has_too_is_no_trace(bench: RemovalBench) -> None:
    text = f"{SHARED} Wilhelmina Throckmorton admired the loom of Joseph Jacquard in the summer of that year."
    bench.build(KEPT | {"patient.txt": text, "copy.txt": KEPT["engine.txt"] + " "})
    gone = [bench.document_id("patient.txt")]
    bench.build(KEPT)
    removed = find_removed(bench.store, gone)
    assert not removed.passages.within(SHARED)
    assert not removed.names.within("Joseph Jacquard came from Lyon")
    assert removed.names.within("Wilhelmina Throckmorton")
    assert clean(bench, *gone)
    kept = {text_key(own) for own in bench.snapshot().table("chunks")["chunk_id"].to_pylist()}
    assert not removed.text_keys & kept


def test_labels_of_their_own_are_traces(bench: RemovalBench) -> None:
    def build(*records: dict[str, object]) -> None:
        bench.build({"all.jsonl": "\n".join(map(json.dumps, records))})

    kept = [{"text": text, "id": name, "labels": ["ward"]} for name, text in KEPT.items()]
    build(*kept, {"text": REMOVED["patient.txt"], "id": "case-7", "labels": ["ward", "case-7-only"]})
    removed_before = bench.snapshot().table("documents").to_pylist()
    build(*kept)
    gone = next(row for row in removed_before if "Throckmorton" in row["text"])
    removed = find_removed(bench.store, [gone["document_id"]])
    assert set(gone["labels"]) - {"ward"} <= removed.values
    assert "ward" not in removed.values
    assert gone["uri"] not in removed.values, "other records of the file remain"
