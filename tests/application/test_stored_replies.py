"""The replies that layer 0 of some chunks rests on: a build of them finds every one, and the others are not needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from hirag_dist.application.build import BuildOptions
from hirag_dist.application.stored_replies import (
    entity_vector_keys,
    models_of_last_build,
    replay_keys,
    text_vector_keys,
)
from hirag_dist.llm.reply_store import purge, scan_records
from tests.removal_builds import KEPT, REMOVED, RemovalBench, removal_bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[RemovalBench]:
    with removal_bench(tmp_path) as made:
        yield made


def test_a_build_of_the_rest_finds_its_layer_0_and_nothing_else_stays(bench: RemovalBench) -> None:
    from_nothing = BuildOptions(rebuild=True)
    bench.build(KEPT | REMOVED)
    after = bench.build(KEPT, options=from_nothing)
    snapshot = bench.snapshot()
    models = models_of_last_build(bench.config, bench.store)
    keys = replay_keys(bench.config, bench.store, models, snapshot.table("chunks"))
    stored = {record.key for record in scan_records(bench.store)}
    assert keys < stored
    chunks = snapshot.table("chunks")["text"].to_pylist()
    assert text_vector_keys(chunks, models.embedder, models.dim) <= keys
    base = snapshot.table("entities")
    base = base.filter([layer == 0 for layer in base["layer"].to_pylist()])
    assert entity_vector_keys(base, models.embedder, models.dim) <= keys

    purge(bench.store, lambda record: record.key in keys)
    shutil.rmtree(bench.folder / "index" / "work")
    again = bench.build(KEPT, options=from_nothing)
    assert again.snapshot_id == after.snapshot_id
    sent = {role: use.calls - use.ledger_hits for (role, *_), use in again.sent.uses.items()}
    assert sent == {"probe": 1, "extract": 0, "summarise": 1, "report": 1, "embed": 1}, "the layers above alone"


def test_replies_about_other_chunks_are_not_found(bench: RemovalBench) -> None:
    bench.build(KEPT | REMOVED)
    models = models_of_last_build(bench.config, bench.store)
    chunks = bench.snapshot().table("chunks")
    gone = bench.document_id("patient.txt")
    of_gone = [own == gone for own in chunks["document_id"].to_pylist()]
    removed = replay_keys(bench.config, bench.store, models, chunks.filter(of_gone))
    kept = replay_keys(bench.config, bench.store, models, chunks.filter([not own for own in of_gone]))
    assert removed
    assert kept
    texts = [record.value for record in scan_records(bench.store) if record.key in kept]
    assert any(b"Babbage" in text for text in texts)
    assert not any(b"Throckmorton" in text for text in texts)
