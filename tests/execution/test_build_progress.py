"""Phases and calls of a build, from its events."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.execution.build_progress import PHASES, BuildProgress, CallRate, CallsLeft, ProgressReport
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    Publishing,
    StageFinished,
    StageStarted,
    TaskFinished,
    UsageRecorded,
)
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply


def phase_after(*labels: str) -> str:
    progress = BuildProgress()
    for label in labels:
        progress(StageStarted(label, 1, 0, 1))
    assert progress.current is not None
    return progress.current.name


def test_stages_belong_to_phases_that_only_go_forward() -> None:
    assert phase_after("documents", "chunks") == "read"
    assert phase_after("documents", "extract", "merge layer 0") == "extract"
    assert phase_after("documents", "extract", "cluster layer 0: axes", "merge layer 1") == "hierarchy"
    assert phase_after("reports", "embed layer 0") == "communities"  # an update embeds what it has written
    progress = BuildProgress()
    progress(StageStarted("documents", 1, 0, 1))
    progress(Publishing())
    assert progress.current is progress.phases[-1]
    assert [phase.name for phase in progress.phases] == list(PHASES)
    assert all(phase.begun_at is not None for phase in progress.phases)


def test_calls_add_up_over_stages_and_phases_and_probes_belong_to_none() -> None:
    progress = BuildProgress()
    probe = UsageMeter()
    probe.count("extract", "m", "llm", ChatReply("", input_tokens=24), 0.0, from_ledger=False)
    progress(UsageRecorded("probes", probe))
    progress(StageStarted("documents", 1, 0, 1))
    progress(StageFinished("documents", False, 1, 0, 0.1))
    assert progress.phases[0].calls.answered == 0
    progress(StageStarted("extract", 1, 0, 1))
    progress(CallsProgress("extract", CallTotals(answered=3, tokens=30, refused=1)))
    progress(StageStarted("claims", 1, 0, 1))
    progress(CallsProgress("claims", CallTotals(answered=2, tokens=20, timeouts=1, in_flight=4)))
    assert progress.phases[1].calls == CallTotals(answered=5, tokens=50, refused=1, timeouts=1, in_flight=4)
    progress(StageStarted("summarise layer 0", 1, 0, 1))
    progress(CallsProgress("summarise layer 0", CallTotals(answered=1)))
    assert (progress.phases[2].calls.answered, progress.sent.answered) == (1, 7)


def test_refused_replies_are_not_progress_and_calls_in_flight_are_left() -> None:
    progress = BuildProgress()
    progress(CallsExpected({"extract": 10}))
    progress(StageStarted("extract", 1, 0, 10))
    progress(CallsProgress("extract", CallTotals(answered=6, refused=4, in_flight=2)))
    assert progress.expected_calls == 8
    progress(CallsProgress("extract", CallTotals(answered=30, refused=4, in_flight=2)))
    assert progress.left[0] == 2


def test_a_report_adds_up_the_calls_of_stages_once() -> None:
    sent: list[dict[str, Any]] = []
    now = [0.0]
    report = ProgressReport(sent.append, lambda: now[0])
    usage = UsageMeter()
    for _ in range(4):
        usage.count("extract", "m", "main", ChatReply("", input_tokens=90, output_tokens=10), 0.01, from_ledger=False)
    report(CallsExpected({"extract": 10, "reports": 5}))
    report(StageStarted("extract", 2, 0, 20))
    report(CallsProgress("extract", CallTotals(answered=2, tokens=200, usd=0.02)))
    now[0] = 10.0
    report(CallsProgress("extract", CallTotals(answered=4, tokens=400, usd=0.04, limited=1, pause_s=2.0)))
    assert sent[-1] == {
        "stage": "extract",
        "units_done": 0,
        "units": 20,
        "calls": 4,
        "tokens": 400,
        "usd": 0.04,
        "per_minute": 24.0,
        "limited": 1,
        "waiting_s": 2.0,
        "calls_left": 11,
    }
    report(TaskFinished("extract", 20, 0, 1.0, usage))
    report(StageFinished("extract", False, 20, 0, 1.0, usage))
    assert (sent[-1]["units_done"], sent[-1]["calls"], sent[-1]["tokens"]) == (20, 4, 400)
    report(StageStarted("reports", 1, 0, 5))
    report(CallsProgress("reports", CallTotals(answered=1, tokens=100, usd=0.01)))
    assert (sent[-1]["calls"], sent[-1]["tokens"], sent[-1]["calls_left"]) == (5, 500, 4)


EXPECTED = {"extract": 1000, "describe": 10, "summarise": 200, "reports": 300, "embed": 40}


def test_calls_of_a_stage_that_runs_are_taken_off() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_calls("extract", 400)
    assert left.calls == 1150
    left.on_calls("extract", 1200)  # more than was estimated
    assert left.calls == 550


def test_stages_that_are_over_have_nothing_left() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_started("summarise layer 0", 1.0)
    left.on_calls("summarise layer 0", 150)
    assert left.calls == 50 + 300 + 40
    left.on_started("summarise layer 1", 1.0)
    left.on_calls("summarise layer 1", 20)
    assert left.calls == 30 + 300 + 40
    left.on_finished("reports")
    assert left.calls == 0


def rate_after(*noted: tuple[float, int]) -> float:
    rate = CallRate()
    for now, number in noted:
        rate.note(now, number)
    return rate.per_s


def test_the_rate_is_unknown_before_the_first_reply_and_falls_while_none_comes() -> None:
    assert rate_after((0.0, 0), (30.0, 0), (300.0, 0)) == 0.0
    assert rate_after((0.0, 0), (100.0, 1)) == 0.01
    assert rate_after((0.0, 0), (100.0, 1), *((100.0 + second, 1) for second in range(101))) == 0.005


def test_the_rate_is_that_of_the_last_minute_or_of_the_last_few_replies() -> None:
    fast = [(float(second), 10 * second) for second in range(100)]
    slower = [(100.0 + second, 1000 + second) for second in range(62)]
    assert rate_after(*fast, *slower) == pytest.approx(1.0, rel=0.2)
    assert rate_after(*((90.0 * number, number) for number in range(30))) == pytest.approx(1 / 90)
