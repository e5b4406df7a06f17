"""Calls of one task made at the same time: all end before a failure rises."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.errors import StageFailed
from hirag_dist.execution.build_progress import PHASES, BuildProgress
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    Publishing,
    StageFinished,
    StageStarted,
    UsageRecorded,
)
from hirag_dist.execution.stage import gather_calls
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply


class Calls:
    """Calls that go on when they are let, and say how they ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.go_on = asyncio.Event()

    async def sent(self, name: str) -> str:
        """A request that is out: it does not heed being cancelled until it has its reply."""
        waiting = asyncio.ensure_future(self.go_on.wait())
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.wait([waiting])
            self.ended.append(f"{name}, cancelled")
            raise
        self.ended.append(name)
        return name

    async def queued(self) -> str:
        """A request that waits for its turn, for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("never sent")
        return ""

    async def failing(self) -> str:
        raise StageFailed("this one")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_failure_waits_for_what_was_sent_and_drops_what_was_not() -> None:
    calls = Calls()
    running = asyncio.ensure_future(gather_calls([calls.sent("a"), calls.failing(), calls.queued(), calls.sent("b")]))
    await settle()
    assert not running.done()
    assert calls.ended == ["never sent"]
    calls.go_on.set()
    with pytest.raises(StageFailed, match="this one"):
        await running
    assert sorted(calls.ended) == ["a, cancelled", "b, cancelled", "never sent"]


async def test_cancelled_it_waits_too() -> None:
    calls = Calls()
    running = asyncio.ensure_future(gather_calls([calls.sent("a"), calls.sent("b"), calls.queued()]))
    await settle()
    running.cancel()
    await settle()
    assert not running.done()
    calls.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(calls.ended) == ["a, cancelled", "b, cancelled", "never sent"]


async def test_of_two_failures_the_first_rises_and_none_is_left_over() -> None:
    async def fail(name: str) -> None:
        raise StageFailed(name)

    with pytest.raises(StageFailed, match="one"):
        await gather_calls(fail(name) for name in ("one", "two"))


def phase_after(*labels: str) -> str:
    progress = BuildProgress()
    for label in labels:
        progress(StageStarted(label, 1, 0, 1))
    return progress.current.name


def test_stages_belong_to_phases_that_only_go_forward() -> None:
    assert phase_after("documents", "chunks") == "read"
    assert phase_after("documents", "extract", "extract: dead letters") == "extract"
    assert phase_after("documents", "extract", "merge entities", "describe") == "entities"
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
    progress(StageStarted("extract: dead letters", 1, 0, 1))
    progress(CallsProgress("extract: dead letters", CallTotals(answered=2, tokens=20, timeouts=1, in_flight=4)))
    assert progress.phases[1].calls == CallTotals(answered=5, tokens=50, refused=1, timeouts=1, in_flight=4)
    progress(StageStarted("summarise layer 0", 1, 0, 1))
    progress(CallsProgress("summarise layer 0", CallTotals(answered=1)))
    assert (progress.phases[3].calls.answered, progress.sent.answered) == (1, 7)


def test_refused_replies_are_not_progress_and_calls_in_flight_are_left() -> None:
    progress = BuildProgress()
    progress(CallsExpected({"extract": 10}))
    progress(StageStarted("extract", 1, 0, 10))
    progress(CallsProgress("extract", CallTotals(answered=6, refused=4, in_flight=2)))
    assert progress.expected_calls == 8
    progress(CallsProgress("extract", CallTotals(answered=30, refused=4, in_flight=2)))
    assert progress.left[0] == 2
