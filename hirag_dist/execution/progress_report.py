"""Progress of a build as plain values, for programs: the stage that runs, its calls, and what is left of the build."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from hirag_dist.execution.calls_left import CallRate, CallsLeft
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    ExecutorStarting,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from hirag_dist.execution.usage_bill import UsageBill


class ProgressReport:
    """A listener of a build that reports each change of its progress.

    Args:
        send: called with the progress, from the thread that builds or the one that counts calls.
        clock: seconds.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._send = send
        self._clock = clock
        self._left: CallsLeft | None = None
        self._rate = CallRate()
        self._shown: dict[str, Any] = {}
        self._bill = UsageBill()
        self._sums = self._sent()  # of the stages before the one that runs

    def __call__(self, event: object) -> None:
        """Take an event."""
        self._bill(event)
        match event:
            case ExecutorStarting():
                self._shown = {"stage": f"starting {event.name}"} | self._sums
            case CallsExpected():
                self._left = CallsLeft(event.calls)
                return
            case StageStarted():
                self._rate, self._sums = CallRate(), self._sent()
                if self._left is not None:
                    self._left.on_started(event.label, 1 - event.n_rows_done / max(event.n_rows, 1))
                units = {"units_done": event.n_rows_done, "units": event.n_rows}
                self._shown = {"stage": event.label} | units | self._sums
            case TaskFinished():
                self._shown["units_done"] = self._shown.get("units_done", 0) + event.n_rows
            case CallsProgress():
                self._on_calls(event)
            case StageFinished():
                if self._left is not None:
                    self._left.on_finished(event.label)
                self._shown |= self._sent()
            case _:
                return
        self._send(dict(self._shown))

    def _sent(self) -> dict[str, Any]:
        sent = self._bill.sent.sent_sums()
        return {"calls": sent["calls"], "tokens": sent["tokens"], "usd": sent["usd"] or 0.0}

    def _on_calls(self, event: CallsProgress) -> None:
        calls = event.calls
        per_minute = 60 * self._rate.note(self._clock(), calls.answered)
        if self._left is not None:
            self._left.on_calls(event.label, calls.answered - calls.refused, calls.in_flight)
        self._shown |= {
            "calls": self._sums["calls"] + calls.answered,
            "tokens": self._sums["tokens"] + calls.tokens,
            "usd": self._sums["usd"] + calls.usd,
            "per_minute": round(per_minute, 1),
            "limited": calls.limited,
            "waiting_s": round(calls.pause_s, 1),
            "calls_left": None if self._left is None else self._left.calls,
        }
