"""Builds whose calls go through batches of a simulated endpoint: the same snapshot, half the price, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.cli.builds import Given
from hirag_dist.cli.index import Order, build
from hirag_dist.config import Config
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.pipeline import BuildResult
from hirag_dist.pool.metering import Meter
from hirag_dist.simulator import SimulatorOptions
from hirag_dist.simulator.run import SimulatorThread

SAMPLES = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
FILES = ("newton-whiteness-from-colours.md", "jefferson-1803-louisiana.md")
LOOPBACK = "127.0.0.1:0"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for name in FILES:
        (folder / name).write_bytes((SAMPLES / name).read_bytes())
    return folder


class Bench:
    """Builds of a corpus against one endpoint, each in a folder of its own."""

    def __init__(self, corpus: Path, folder: Path, simulator: SimulatorThread, url: str) -> None:
        self.corpus, self.folder, self.simulator, self.url = corpus, folder, simulator, url

    def config(self, **keys: Any) -> Config:
        llm = {
            "endpoints": {
                "chat": {
                    "base_url": self.url,
                    "model": "m",
                    "output": "json_schema",
                    "price": {"input": 1.0, "cached": 1.0, "output": 4.0},  # a cache hit depends on the order of calls
                }
            },
            "roles": dict.fromkeys(("extract", "summarise", "report"), "chat"),
            "batch_poll_s": 0.002,
        }
        whole = {
            "chunk_tokens": 150,
            "chunk_overlap_tokens": 0,
            "clustering": {"target_size": 6, "max_size": 12},
            "execution": {"executor": "inline"},
        }
        return Config.model_validate(whole | keys | {"llm": llm | keys.get("llm", {})})

    def store(self, name: str) -> Store:
        return Store(str(self.folder / name))

    def build(self, name: str, *, retry: bool = False, limits: Any = (None, None), **keys: Any) -> tuple[str, Meter]:
        """Return the snapshot's id, and what the run sent."""
        result, sent = self.run(name, retry=retry, limits=limits, **keys)
        return result.manifest.snapshot_id, sent

    def run(
        self, name: str, *, retry: bool = False, limits: Any = (None, None), **keys: Any
    ) -> tuple[BuildResult, Meter]:
        config = self.config(**keys)
        inputs = [str(self.corpus)]
        order = Order("index", Given.index(inputs, config), *limits, retry=retry)
        return build(config, self.store(name), order, lambda made: made.index(inputs))

    def batched(self, name: str, **keys: Any) -> tuple[str, Meter]:
        llm = {"batch": True} | keys.pop("llm", {})
        return self.build(name, llm=llm, **keys)

    def direct_calls(self) -> int:
        return int(self.simulator.stats()["endpoints"]["/v1/chat/completions"]["calls"])

    def batch_counts(self) -> dict[str, Any]:
        return dict(self.simulator.stats()["batch"])


@pytest.fixture
def make_bench(corpus: Path, tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    running: list[SimulatorThread] = []

    def make(**options: Any) -> Bench:
        simulator = SimulatorThread(SimulatorOptions(listen=LOOPBACK, prompt_cache=False, **options))
        url = simulator.__enter__()
        running.append(simulator)
        return Bench(corpus, tmp_path, simulator, url)

    yield make
    for each in running:
        each.__exit__(None, None, None)


def test_the_same_snapshot_for_half_the_price(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    direct, paid = bench.build("direct")
    calls = bench.direct_calls()
    batched, sent = bench.batched("batched")
    assert batched == direct
    assert bench.direct_calls() == calls
    assert bench.batch_counts()["calls"] == calls
    assert sent.spent() == (paid.spent()[0], pytest.approx(paid.spent()[1] / 2))
    usage = [open_snapshot(bench.store(name), direct).table("usage").to_pylist() for name in ("direct", "batched")]
    for whole, half in zip(*usage, strict=True):
        assert (half["calls"], half["input_tokens"]) == (whole["calls"], whole["input_tokens"])
        assert half["cost_usd"] == pytest.approx(whole["cost_usd"] / 2)
