"""Rounds of a watch with a clock, a listing and updates that the test decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.watch import (
    Listing,
    Watch,
    WatchEvent,
    list_files,
)
from hirag_dist.errors import BudgetReached, ConfigError, HiragError, IndexBusy, InputError
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.service.metrics_server import WatchMetrics
from hirag_dist.storage.snapshot.manifest import Manifest

DAY = 86_400.0


def result_of(listing: Listing) -> IndexResult:
    manifest = Manifest.model_construct(
        snapshot_id="s", counts={"documents": len(listing)}, notes={"update": {"debt": {"reports": {"tokens": 7}}}}
    )
    return IndexResult("i", manifest, True, None, 1, 0, 0, (), {}, (), None, UsageMeter(), 1.0)


@dataclass
class Bench:
    """A watch that looks every minute, and everything around it."""

    max_usd: float | None = None
    now: float = 10 * DAY
    jump: float = 0.0  # of the system's clock
    files: dict[str, tuple[int, str]] = field(default_factory=lambda: {"a": (1, "1")})
    indexed: dict[str, tuple[int, str]] = field(default_factory=dict)
    error: HiragError | None = None
    limits: list[float | None] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)
    dollars: float = 0.0

    def __post_init__(self) -> None:
        self.metrics = WatchMetrics()
        self.watch = Watch(
            lambda: dict(self.files),
            self.update,
            self.events.append,
            self.metrics,
            lambda since: self.dollars,
            self.max_usd,
            lambda: self.now + self.jump,
            lambda: self.now,
        )

    def update(self, max_usd: float | None) -> IndexResult:
        self.limits.append(max_usd)
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


def test_the_first_round_applies_what_is_there() -> None:
    bench = Bench()
    bench.rounds(5)
    assert bench.limits == [None]
    assert bench.indexed == bench.files
    assert [event.kind for event in bench.events] == ["updated"]
    assert bench.value("hirag_watch_failures_total") == 0
    assert bench.value("hirag_watch_updates_total") == 1
    assert bench.value("hirag_watch_documents") == 1
    assert bench.value("hirag_watch_debt_tokens") == 7


@pytest.mark.parametrize("jump", [0.0, -DAY, 40 * DAY])
def test_a_change_is_applied_by_the_round_after_it_was_found(jump: float) -> None:
    bench = Bench()
    bench.rounds()
    bench.files["b"] = (1, "half")
    bench.rounds()
    bench.jump = jump
    assert len(bench.limits) == 1
    assert bench.value("hirag_watch_pending_files") == 1
    assert bench.value("hirag_watch_oldest_change_seconds") == 60
    bench.files |= {"b": (2, "whole"), "c": (1, "1")}
    bench.rounds()
    assert bench.indexed == bench.files
    assert (bench.events[-1].n_files, bench.events[-1].age_s) == (2, 60)
    assert bench.value("hirag_watch_oldest_change_seconds") == 0


def test_a_change_during_an_update_is_seen_by_the_next_listing() -> None:
    bench = Bench()
    bench.watch.listing = lambda: {"a": (0, "0")}  # half written
    bench.rounds()
    bench.watch.listing = lambda: dict(bench.files)
    bench.rounds(2)
    assert len(bench.limits) == 2


def test_failures_are_tried_again_and_said_once() -> None:
    bench = Bench(error=HiragError("the endpoint is down"))
    began = bench.now
    bench.rounds(20)
    assert [event.message for event in bench.events] == ["the endpoint is down; it is tried again"]
    assert bench.value("hirag_watch_failures_total") == len(bench.limits) == 20
    assert bench.value("hirag_watch_oldest_change_seconds") == bench.now - began
    bench.error = None
    bench.rounds()
    assert bench.indexed == bench.files
    bench.files["b"] = (1, "1")
    bench.error = HiragError("the endpoint is down")
    bench.rounds(3)
    assert [event.kind for event in bench.events] == ["failed", "updated", "failed"]


def test_an_input_out_of_reach_is_a_failure_and_not_an_empty_one() -> None:
    bench = Bench()
    bench.rounds()

    def gone() -> Listing:
        raise InputError("the folder is not there")

    bench.watch.listing = gone
    bench.rounds(60)
    assert {event.kind for event in bench.events[1:]} == {"failed"}
    assert len(bench.limits) == 1
    bench.watch.listing = lambda: {"a": (1, "1"), "b": (1, "1")}
    bench.rounds()
    assert bench.value("hirag_watch_pending_files") == 1


def test_a_wrong_configuration_is_not_tried_again() -> None:
    bench = Bench(error=ConfigError("unknown key"))
    with pytest.raises(ConfigError):
        bench.rounds()


def test_another_build_is_waited_for() -> None:
    bench = Bench(error=IndexBusy("held"))
    bench.rounds(3)
    assert [event.kind for event in bench.events] == ["waiting"]
    assert bench.value("hirag_watch_failures_total") == 0
    bench.error = None
    bench.rounds()
    assert bench.indexed == bench.files


def test_a_spent_budget_waits_for_the_next_day() -> None:
    bench = Bench(2.0, dollars=0.5, error=BudgetReached("$1.5 spent"))
    bench.rounds()
    assert bench.limits == [1.5]
    assert "changes wait until 1970-01-12T00:00" in bench.events[-1].message
    bench.error = None
    bench.rounds(100)
    assert bench.limits == [1.5]  # what is left is too little for a call
    bench.now, bench.dollars = 11 * DAY + 1, 0.0
    bench.rounds()
    assert bench.limits == [1.5, 2.0]
    bench.dollars = 3.0
    bench.files["b"] = (1, "1")
    bench.rounds(5)
    assert len(bench.limits) == 2
    assert bench.events[-1].kind == "waiting"
    assert "the $2 of today are spent" in bench.events[-1].message


def test_the_budget_of_a_day_outlives_a_clock_set_back() -> None:
    bench = Bench(2.0, dollars=3.0)
    bench.rounds()
    bench.jump = -DAY  # the records of the day after are still there
    bench.rounds(100)
    assert bench.limits == []
    assert [event.kind for event in bench.events] == ["waiting", "waiting"]


def test_the_listing_shows_a_change_of_the_same_size(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one")
    before = list_files([str(tmp_path)])
    assert before == list_files([str(tmp_path)])
    file.write_text("two")
    assert list(before) == list(list_files([str(tmp_path)]))
    assert before != list_files([str(tmp_path)])
