"""Packing changes what a build costs, not what it builds: with a model that heeds each unit, the same snapshot."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from hirag_dist.application.build import run_build
from hirag_dist.config.loader import load_config
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

FILES = sorted((Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus").glob("newton-*"))


def built(folder: Path, **settings: object) -> Snapshot:
    overrides = {"execution.executor": "inline", **{key.replace("__", "."): value for key, value in settings.items()}}
    store = Store(str(folder))
    config = load_config(None, {}, overrides).config
    result = run_build([str(path) for path in FILES], store.uri, config)
    assert result.dead_letters == 0
    return open_snapshot(store, result.manifest.snapshot_id)


def calls(snapshot: Snapshot) -> Counter[str]:
    found: Counter[str] = Counter()
    for row in snapshot.table("usage").to_pylist():
        found[row["stage"].split()[0]] += row["calls"]
        assert row["rejected"] == 0
    return found


def test_packed_and_unpacked_builds_give_the_same_snapshot(tmp_path: Path) -> None:
    packed = built(tmp_path / "packed")
    alone = built(tmp_path / "alone", pack_tokens=0)
    assert packed.manifest.snapshot_id == alone.manifest.snapshot_id
    n_written = sum(row["origin"] == "model" for row in alone.table("reports").to_pylist())
    assert calls(alone)["reports"] == n_written
    assert calls(packed)["reports"] < 0.7 * n_written
    assert calls(packed)["summarise"] < 0.7 * calls(alone)["summarise"]
