"""Progress of a stage by reply: the totals of the executor's calls are read while its tasks run."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Protocol, runtime_checkable

from hirag_dist.execution.events import CallsProgress
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.protocols import EventListener, Executor

_INTERVAL_S = 1.0
_JOIN_S = 10.0


@runtime_checkable
class CountsCalls(Protocol):
    """Executor that knows the calls of all its workers."""

    def call_totals(self) -> CallTotals:
        """Return the calls of this run so far. Any thread may call it; it raises nothing."""
        ...


class CallPoll:
    """A context manager that emits `CallsProgress` of one stage, from a thread of its own.

    Args:
        executor: emits nothing unless it is `CountsCalls`.
        emit: publishes an event.
        label: of the stage.
    """

    def __init__(self, executor: Executor, emit: EventListener, label: str, interval_s: float = _INTERVAL_S) -> None:
        self._executor = executor
        self._emit = emit
        self._label = label
        self._interval_s = interval_s
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> CallPoll:
        if isinstance(self._executor, CountsCalls):
            before = self._executor.call_totals()
            self._thread = threading.Thread(
                target=self._poll, args=(self._executor, before), name="call-poll", daemon=True
            )
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _poll(self, executor: CountsCalls, before: CallTotals) -> None:
        while not self._stopped.wait(self._interval_s):
            self._emit(CallsProgress(self._label, executor.call_totals().since(before)))
