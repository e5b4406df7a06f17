"""Rounds of a watch with a clock, a listing and updates that the test decides."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from hirag_dist.composition.index_result import IndexResult
from hirag_dist.composition.watch import (
    Listing,
    Watch,
    WatchEvent,
    WatchOptions,
)
from hirag_dist.errors import BudgetReached, ConfigError, HiragError, IndexBusy, InputError
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.service.watch_metrics import WatchMetrics
from hirag_dist.storage.snapshot.manifest import Manifest

DAY = 86_400.0


def result_of(listing: Listing) -> IndexResult:
    manifest = Manifest.model_construct(
        snapshot_id="s", counts={"documents": len(listing)}, notes={"update": {"debt": {"reports": {"tokens": 7}}}}
    )
    return IndexResult("i", manifest, True, None, 1, 0, 0, (), {}, (), None, UsageMeter(), 1.0)


@dataclass
class Bench:
    """A watch, and everything around it."""

    options: WatchOptions = field(default_factory=WatchOptions)
    now: float = 10 * DAY
    jump: float = 0.0  # of the system's clock
    files: dict[str, tuple[int, str]] = field(default_factory=lambda: {"a": (1, "1")})
    indexed: dict[str, tuple[int, str]] = field(default_factory=dict)
    error: HiragError | None = None
    limits: list[float | None] = field(default_factory=list)
    events: list[WatchEvent] = field(default_factory=list)
    dollars: float = 0.0
    update_s: float = 0.0

    def __post_init__(self) -> None:
        self.metrics = WatchMetrics()
        self.watch = Watch(
            lambda: dict(self.files),
            self.update,
            self.options,
            self.events.append,
            self.metrics,
            lambda since: self.dollars,
            lambda: self.now + self.jump,
            lambda: self.now,
        )

    def update(self, max_usd: float | None) -> IndexResult:
        self.limits.append(max_usd)
        if self.error is not None:
            raise self.error
        self.now += self.update_s
        self.indexed = dict(self.files)
        return result_of(self.files)

    def rounds(self, n: int = 1) -> None:
        for _ in range(n):
            self.now += self.watch.round()

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


def test_changes_wait_for_each_other_but_not_longer_than_every() -> None:
    bench = Bench(WatchOptions(every_s=60, poll_s=5))
    bench.rounds()
    bench.files["b"] = (1, "1")
    bench.rounds()
    bench.files |= {"a": (2, "2"), "c": (1, "1")}
    bench.rounds(10)
    assert len(bench.limits) == 1
    assert bench.value("hirag_watch_pending_files") == 3
    assert bench.value("hirag_watch_oldest_change_seconds") == 55
    bench.rounds(3)
    assert len(bench.limits) == 2
    assert bench.indexed == bench.files
    assert (bench.events[-1].n_files, bench.events[-1].age_s) == (3, 60)
    assert bench.value("hirag_watch_oldest_change_seconds") == 0


@pytest.mark.parametrize("jump", [-DAY, -3600.0, 3600.0, 40 * DAY])
def test_durations_do_not_follow_the_clock_of_the_system(jump: float) -> None:
    bench = Bench(WatchOptions(every_s=60, poll_s=5))
    bench.rounds()
    bench.files["b"] = (1, "1")
    bench.rounds(2)
    bench.jump = jump
    bench.rounds(9)
    assert bench.value("hirag_watch_oldest_change_seconds") == 55
    assert len(bench.limits) == 1
    bench.rounds(3)
    assert len(bench.limits) == 2
    assert bench.events[-1].age_s == 60
    bench.files["c"] = (1, "1")
    bench.error = HiragError("out")
    bench.rounds(13)
    assert [event.kind for event in bench.events[2:]] == ["failed"]
    bench.jump, bench.error = 0.0, None
    bench.rounds(3)  # the next attempt is 10 s after the failure
    assert bench.indexed == bench.files


@pytest.mark.parametrize("jump", [-DAY, -10 * 3600.0])
def test_the_budget_of_a_day_outlives_a_clock_set_back(jump: float) -> None:
    bench = Bench(WatchOptions(every_s=5, poll_s=5, max_usd_per_day=2.0), now=10.4 * DAY)
    bench.dollars = 3.0
    bench.rounds()
    bench.jump = jump  # records of the days before and after are still there
    bench.rounds(100)
    assert bench.limits == []
    assert {event.kind for event in bench.events} == {"waiting"}
    assert len(bench.events) <= 2
    bench.jump, bench.dollars = DAY, 0.0
    bench.rounds(2)
    assert bench.limits == [2.0]


def test_a_batch_does_not_wait() -> None:
    bench = Bench(WatchOptions(every_s=3600, batch=2))
    bench.rounds()
    bench.files["b"] = (1, "1")
    bench.rounds(3)
    assert len(bench.limits) == 1
    del bench.files["a"]
    bench.rounds()
    assert len(bench.limits) == 2
    assert bench.indexed == {"b": (1, "1")}


def test_a_change_that_is_taken_back_is_none() -> None:
    bench = Bench(WatchOptions(every_s=60))
    bench.rounds()
    bench.files["b"] = (1, "1")
    bench.rounds()
    del bench.files["b"]
    bench.rounds(30)
    assert len(bench.limits) == 1


def test_failures_are_tried_again_later_and_later() -> None:
    bench = Bench(WatchOptions(poll_s=5, max_backoff_s=40), error=HiragError("the endpoint is down"))
    began = bench.now
    bench.rounds(20)
    waits = [event.message.rsplit(" in ", 1)[1] for event in bench.events]
    assert waits[:4] == ["10 s", "20 s", "40 s", "40 s"]
    assert bench.value("hirag_watch_failures_total") == len(bench.limits) == len(bench.events)
    assert bench.value("hirag_watch_oldest_change_seconds") == pytest.approx(bench.now - began)
    bench.error = None
    bench.rounds(10)
    assert bench.indexed == bench.files
    bench.files["b"] = (1, "1")
    bench.error = HiragError("down again")
    bench.rounds(20)
    assert bench.events[-1].message.endswith(("10 s", "20 s", "40 s"))


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
    bench.rounds(1 + 60 // 5)  # soon listed again, however long it failed
    assert bench.value("hirag_watch_pending_files") == 1


def test_a_wrong_configuration_is_not_tried_again() -> None:
    bench = Bench(error=ConfigError("unknown key"))
    with pytest.raises(ConfigError):
        bench.rounds()


def test_another_build_is_waited_for() -> None:
    bench = Bench(error=IndexBusy("held"))
    bench.rounds(3)
    assert {event.kind for event in bench.events} == {"waiting"}
    assert bench.value("hirag_watch_failures_total") == 0
    bench.error = None
    bench.rounds(2)
    assert bench.indexed == bench.files


def test_a_spent_budget_waits_for_the_next_day() -> None:
    bench = Bench(WatchOptions(max_usd_per_day=2.0, poll_s=600), dollars=0.5, error=BudgetReached("$1.5 spent"))
    bench.rounds()
    assert bench.limits == [1.5]
    assert "changes wait until 1970-01-12T00:00" in bench.events[-1].message
    bench.error, bench.dollars = None, 2.0
    bench.rounds(100)
    assert bench.limits == [1.5]
    bench.now, bench.dollars = 11 * DAY + 1, 0.0
    bench.rounds()
    assert bench.limits == [1.5, 2.0]
    bench.dollars = 3.0
    bench.files["b"] = (1, "1")
    bench.rounds(5)
    assert len(bench.limits) == 2
    assert bench.events[-1].kind == "waiting"
    assert "the $2 of today are spent" in bench.events[-1].message
