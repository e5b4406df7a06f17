"""Builds whose calls go through batches of a simulated endpoint: the same snapshot, half the price, nothing twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition.build_records import BuildArguments
from hirag_dist.composition.index_result import IndexResult
from hirag_dist.composition.indexing import Action, BuildOptions, execute_build
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached, ConfigError
from hirag_dist.execution.batch_api.records import OpenBatch, open_batches
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.llm.usage import ModelUsage, UsageMeter
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.run import SimulatorThread

SAMPLES = Path(__file__).parents[3] / "hirag_dist" / "samples" / "corpus"
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

    def build(
        self, name: str, *, retry: bool = False, limits: Any = (None, None), **keys: Any
    ) -> tuple[str, UsageMeter]:
        """Return the snapshot's id, and what the run sent."""
        result = self.run(name, retry=retry, limits=limits, **keys)
        return result.snapshot_id, result.sent

    def run(self, name: str, *, retry: bool = False, limits: Any = (None, None), **keys: Any) -> IndexResult:
        config = self.config(**keys)
        inputs = [str(self.corpus)]
        options = BuildOptions(max_usd=limits[0], max_tokens=limits[1])
        arguments = BuildArguments.index(inputs, config)
        action: Action = "retry" if retry else "index"

        def work(build: Build) -> BuildResult:
            return build.index(inputs)

        return execute_build(config, self.store(name), action, arguments, options, work, base_id=None)

    def batched(self, name: str, **keys: Any) -> tuple[str, UsageMeter]:
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


def test_lines_that_expire_are_asked_again(make_bench: Callable[..., Bench]) -> None:
    expected, _ = make_bench().build("direct")
    bench = make_bench(batch_expire_rate=0.3)
    batched, sent = bench.batched("batched", llm={"batch_lines": 7})
    counts = bench.batch_counts()
    assert batched == expected
    assert counts["faults"]["expired"] > 3
    assert counts["batches"]["expired"] > 1  # seven calls in a batch: a stage has several
    assert counts["repeats"] == 0
    assert counts["calls"] + bench.direct_calls() == sent_calls(sent)


def test_what_batches_never_bring_is_asked_directly(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(batch_expire_rate=1.0)
    small = {"max_layers": 0, "communities": {"report_min_entities": 1000}}  # extraction alone
    batched, sent = bench.batched("batched", llm={"batch_rounds": 2}, **small)
    assert bench.batch_counts()["batches"] == {"expired": 2}
    assert bench.direct_calls() == sent_calls(sent) > 0
    assert batched == make_bench().build("direct", **small)[0]


@pytest.mark.parametrize("fault", ["malformed_rate", "fail_rate"])
def test_refused_and_failed_lines_go_into_the_next_batch(make_bench: Callable[..., Bench], fault: str) -> None:
    """The draw for a request and attempt is the same in batches as for single calls."""
    bench = make_bench(**{fault: 0.3})
    batched, sent = bench.batched("batched", llm={"batch_rounds": 20})
    assert bench.direct_calls() == 0
    assert bench.batch_counts()["faults"][fault.removesuffix("_rate")] > 5
    assert (sum(use.rejected for use in usage_of(bench, "batched")) > 0) == (fault == "malformed_rate")
    if fault == "malformed_rate":  # the failures of single calls are waited out, which takes seconds
        other = make_bench(**{fault: 0.3})
        expected, paid = other.build("direct")
        assert sent_calls(sent) == sent_calls(paid)
    else:
        expected, _ = make_bench().build("direct")
    assert batched == expected


def test_second_steps_and_gleanings_take_more_rounds(make_bench: Callable[..., Bench]) -> None:
    keys = {"extraction": "two_step", "gleaning_rounds": 1, "max_layers": 0}
    expected, _ = make_bench().build("direct", **keys)
    bench = make_bench()
    batched, _ = bench.batched("batched", llm={"batch_rounds": 1}, **keys)
    assert batched == expected
    assert bench.direct_calls() == 0
    assert bench.batch_counts()["batches"]["completed"] >= 5  # four of extraction alone
    assert bench.batch_counts()["repeats"] == 0


@pytest.mark.parametrize("limits", [(0.04, None), (None, 30_000)])
def test_a_spending_limit_holds_and_a_later_run_goes_on(make_bench: Callable[..., Bench], limits: Any) -> None:
    bench = make_bench()
    with pytest.raises(BudgetReached, match="run again to go on from here"):
        bench.batched("batched", limits=limits)
    counts = bench.batch_counts()
    tokens = counts["input_tokens"] + counts["output_tokens"]
    usd = (counts["input_tokens"] + 4 * counts["output_tokens"]) / 2e6
    spent, limit = (usd, limits[0]) if limits[0] is not None else (tokens, limits[1])
    assert 0.3 * limit < spent <= limit
    before = counts["calls"]
    snapshot, sent = bench.batched("batched")
    assert sent_calls(sent) == bench.batch_counts()["calls"] - before
    assert bench.batch_counts()["repeats"] == 0
    assert snapshot == bench.build("direct")[0]


def test_a_retry_gives_each_dead_letter_its_new_attempts_and_no_more(make_bench: Callable[..., Bench]) -> None:
    """A reply that came in a batch is in the ledger when its task looks: it counts as new all the same."""
    keys = {"max_layers": 0, "max_reject_ratio": 1, "communities": {"report_min_entities": 1000}}
    bench = make_bench(malformed_rate=0.9)
    first, _ = bench.batched("batched", llm={"attempts": 1}, **keys)
    dead = open_snapshot(bench.store("batched"), first).table("rejects").num_rows
    assert dead > 5
    second, sent = bench.batched("batched", retry=True, llm={"attempts": 3}, **keys)
    left = open_snapshot(bench.store("batched"), second).table("rejects").to_pylist()
    assert left
    assert {letter["attempts"] for letter in left} == {1 + 3}
    assert dead < sent_calls(sent) <= 3 * dead
    assert bench.direct_calls() == 0


def test_a_batch_that_is_out_needs_its_endpoint(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    store = bench.store("batched")
    out = OpenBatch("a", "an old one", "extract", "extract", "r", 3, 0.0, 9, 0.1, "file", "batch")
    store.write_json(out.path, asdict(out))
    with pytest.raises(ConfigError, match="a batch is out at endpoint 'an old one'"):
        bench.build("batched")
    assert open_batches(store) == [out]


def test_on_ray(ray_cluster: object, make_bench: Callable[..., Bench]) -> None:
    small = {"max_layers": 0}
    bench = make_bench()
    batched, _ = bench.batched("batched", execution={"executor": "ray", "workers": 2}, limits=(10.0, None), **small)
    assert bench.direct_calls() == 0
    assert not open_batches(bench.store("batched"))
    assert batched == bench.build("direct", **small)[0]


def sent_calls(meter: UsageMeter) -> int:
    return sum(use.calls - use.ledger_hits for use in meter.uses.values())


def usage_of(bench: Bench, name: str) -> list[ModelUsage]:
    rows = open_snapshot(bench.store(name)).table("usage").to_pylist()
    return list(UsageMeter.from_rows(rows).uses.values())
