"""Builds against a simulated endpoint that pack their units in another way pay for none of them again."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import run_build
from hirag_dist.config.loader import load_config
from hirag_dist.storage.layout import LEDGER
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.app import SimulatorThread

CORPUS = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
FILES = sorted(CORPUS.glob("newton-*"))[:3]
Use = Counter[tuple[str, str]]


class Bench:
    """Builds, each in a folder of its own; one may begin with the ledger of another."""

    def __init__(self, folder: Path, simulator: SimulatorThread, url: str) -> None:
        self.folder, self.simulator, self.url = folder, simulator, url

    def build(self, name: str, ledger_of: str = "", **keys: Any) -> tuple[str, Use, int]:
        """Return the snapshot's id, the use of each stage that packs units, and the number of chat calls sent."""
        store = Store(str(self.folder / name))
        if ledger_of:
            shutil.copytree(self.folder / ledger_of / LEDGER, self.folder / name / LEDGER, dirs_exist_ok=True)
        llm = {
            "endpoints": {"chat": {"base_url": self.url, "model": "m", "output": "delimited"}},
            "roles": dict.fromkeys(("extract", "summarise", "report"), "chat"),
        }
        whole = {
            "chunk_tokens": 200,
            "chunk_overlap_tokens": 0,
            "clustering": {"target_size": 6},
            "communities": {"max_size": 40},
            "resolution": {"enabled": True},
            "pack_tokens": 2000,
            "execution": {"executor": "inline"},
            "llm": llm,
        }
        before = self.calls()
        result = run_build([str(file) for file in FILES], store.uri, load_config(None, {}, whole | keys).config)
        assert result.dead_letters == 0
        use: Use = Counter()
        for row in open_snapshot(store, result.snapshot_id).table("usage").to_pylist():
            stage = row["stage"].split()[0]
            if stage in ("resolve", "summarise", "reports"):
                for key in ("calls", "input_tokens", "output_tokens"):
                    use[stage, key] += row[key]
        return result.snapshot_id, use, self.calls() - before

    def calls(self) -> int:
        return int(self.simulator.stats()["endpoints"]["/v1/chat/completions"]["calls"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    simulator = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", prompt_cache=False))
    with simulator as url:
        yield Bench(tmp_path, simulator, url)


def test_a_build_that_packs_otherwise_pays_nothing(bench: Bench) -> None:
    snapshot, use, n_paid = bench.build("first")
    assert use["resolve", "calls"] > 0
    assert all(use[stage, "calls"] > 1 for stage in ("summarise", "reports"))
    for name, keys in {
        "smaller": {"pack_tokens": 1000},
        "larger": {"pack_tokens": 50_000},
    }.items():
        again, found, n_sent = bench.build(name, ledger_of="first", **keys)
        assert (again, n_sent) == (snapshot, 0), name
        for stage in ("resolve", "summarise", "reports"):
            for key in ("input_tokens", "output_tokens"):
                assert found[stage, key] == use[stage, key], (name, stage)
    assert n_paid > 20
