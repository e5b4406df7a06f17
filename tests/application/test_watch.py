"""Rounds of a watch with a clock, a listing and updates that the test decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.watch import Listing, Watch, list_files
from hirag_dist.errors import BudgetReached, ConfigError, HiragError, InputError
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.service.metrics_server import WatchMetrics
from hirag_dist.storage.snapshot.manifest import Manifest


def result_of(listing: Listing) -> IndexResult:
    manifest = Manifest.model_construct(snapshot_id="s", counts={"documents": len(listing)})
    return IndexResult("i", manifest, True, None, 1, 0, 0, (), {}, (), None, UsageMeter(), 1.0)


@dataclass
class Bench:
    """A watch that looks every minute, and everything around it."""

    now: float = 1000.0
    files: dict[str, tuple[int, str]] = field(default_factory=lambda: {"a": (1, "1")})
    indexed: dict[str, tuple[int, str]] = field(default_factory=dict)
    error: HiragError | None = None
    n_updates: int = 0
    said: list[IndexResult | HiragError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.metrics = WatchMetrics()
        self.watch = Watch(lambda: dict(self.files), self.update, self.said.append, self.metrics, lambda: self.now)

    def update(self) -> IndexResult:
        self.n_updates += 1
        if self.error is not None:
            raise self.error
        self.indexed = dict(self.files)
        return result_of(self.files)

    def rounds(self, n: int = 1) -> None:
        for _ in range(n):
            self.watch.round()
            self.now += 60

    def value(self, name: str) -> Any:
        return self.metrics.registry.get_sample_value(name)


def test_a_change_is_applied_by_the_round_after_it_was_found() -> None:
    bench = Bench()
    bench.rounds()
    bench.files["b"] = (1, "half")
    bench.rounds()
    assert bench.n_updates == 1
    assert bench.value("hirag_watch_oldest_change_seconds") == 60
    bench.files |= {"b": (2, "whole"), "c": (1, "1")}
    bench.rounds()
    assert bench.indexed == bench.files
    assert bench.value("hirag_watch_oldest_change_seconds") == 0


def test_a_change_during_an_update_is_seen_by_the_next_listing() -> None:
    bench = Bench()
    bench.watch.listing = lambda: {"a": (0, "0")}  # half written
    bench.rounds()
    bench.watch.listing = lambda: dict(bench.files)
    bench.rounds(2)
    assert bench.n_updates == 2


def test_failures_are_tried_again_and_said_once() -> None:
    bench = Bench(error=HiragError("the endpoint is down"))
    began = bench.now
    bench.rounds(20)
    assert [str(said) for said in bench.said] == ["the endpoint is down"]
    assert bench.value("hirag_watch_failures_total") == bench.n_updates == 20
    assert bench.value("hirag_watch_oldest_change_seconds") == bench.now - began
    bench.error = None
    bench.rounds()
    assert bench.indexed == bench.files
    bench.files["b"] = (1, "1")
    bench.error = HiragError("the endpoint is down")
    bench.rounds(3)
    assert [isinstance(said, IndexResult) for said in bench.said] == [False, True, False]


def test_an_input_out_of_reach_is_a_failure_and_not_an_empty_one() -> None:
    bench = Bench()
    bench.rounds()

    def gone() -> Listing:
        raise InputError("the folder is not there")

    bench.watch.listing = gone
    bench.rounds(60)
    assert [str(said) for said in bench.said[1:]] == ["the folder is not there"]
    assert bench.n_updates == 1


@pytest.mark.parametrize("error", [ConfigError("unknown key"), BudgetReached("$2 spent")])
def test_a_wrong_configuration_or_a_spent_budget_ends_it(error: HiragError) -> None:
    bench = Bench(error=error)
    with pytest.raises(type(error)):
        bench.rounds()


def test_the_listing_shows_a_change_of_the_same_size(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    before = list_files([str(tmp_path)])
    assert before == list_files([str(tmp_path)])
    file.write_text("two")
    assert list(before) == list(list_files([str(tmp_path)]))
    assert before != list_files([str(tmp_path)])
