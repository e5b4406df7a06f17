"""Progress by reply while the tasks of a stage run."""

from __future__ import annotations

import threading
from typing import Any

from hirag_dist.execution.call_poll import CallPoll, CountsCalls
from hirag_dist.execution.events import CallsProgress
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.lazy_executor import LazyExecutor
from hirag_dist.llm.limits.protocol import CallTotals


class Counting:
    """An executor whose number of replies grows with each look."""

    name = "counting"

    def __init__(self) -> None:
        self.looks = 0

    def call_totals(self) -> CallTotals:
        self.looks += 1
        return CallTotals(answered=10 * self.looks, tokens=100, in_flight=3)


def test_the_calls_of_a_stage_are_those_since_its_start() -> None:
    events: list[Any] = []
    enough = threading.Event()

    def emit(event: object) -> None:
        events.append(event)
        if len(events) == 3:
            enough.set()

    with CallPoll(Counting(), emit, "extract", interval_s=0.001):  # type: ignore[arg-type]
        assert enough.wait(60)
    n_events = len(events)
    assert events[:2] == [
        CallsProgress("extract", CallTotals(answered=10, in_flight=3)),
        CallsProgress("extract", CallTotals(answered=20, in_flight=3)),
    ]
    assert len(events) == n_events  # the thread has ended
    assert not [each for each in threading.enumerate() if each.name.startswith("call-poll")]


def test_a_lazy_executor_has_no_calls_before_it_exists() -> None:
    inline = InlineExecutor(lambda: None, totals=lambda: CallTotals(answered=7))  # type: ignore[arg-type, return-value]
    lazy = LazyExecutor("lazy", lambda: inline)
    assert isinstance(lazy, CountsCalls)
    assert lazy.call_totals() == CallTotals()
    lazy._executor()
    assert lazy.call_totals().answered == 7
    lazy.close()
