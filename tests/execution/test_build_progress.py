"""Phases and calls of a build, from its events."""

from __future__ import annotations

from hirag_dist.execution.build_progress import PHASES, BuildProgress
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    Publishing,
    StageFinished,
    StageStarted,
    UsageRecorded,
)
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply


def phase_after(*labels: str) -> str:
    progress = BuildProgress()
    for label in labels:
        progress(StageStarted(label, 1, 0, 1))
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
