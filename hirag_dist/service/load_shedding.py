"""Load shedding (shedder control): bounded concurrency with a FIFO queue.

A request whose expected wait in the queue is too long is rejected at once, so that an overloaded service keeps
answering the requests that it accepts in a short time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded

_SMOOTHING = 0.1  # weight of the newest retrieval in the mean duration


class LoadShedder:
    """The retrieval slots of one process and the queue for them.

    A retrieval computes in one thread, so more at a time make nothing faster: a few hold slots, the others wait in
    the order in which they arrived. A request that would wait too long is rejected at once, while trying elsewhere or
    later still helps.

    Args:
        max_retrievals: slots, that is retrievals at a time.
        max_queue_wait_s: longest expected wait of an accepted request once the queue is longer than `short_queue`.
        max_requests: requests of any kind in the process, including those being sent.
        max_answers: requests at a time that wait for a model to answer; they hold no slot meanwhile.
        short_queue: length of a queue that is accepted whatever its expected wait: the expectation is an estimate, and
            the first retrievals of a snapshot are slow.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        max_retrievals: int,
        max_queue_wait_s: float,
        max_requests: int,
        max_answers: int,
        short_queue: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_retrievals = max_retrievals
        self._slots = asyncio.Semaphore(max_retrievals)
        self._max_queue_wait_s = max_queue_wait_s
        self._max_requests = max_requests
        self._short_queue = short_queue
        self._max_answers = max_answers
        self._clock = clock
        self._mean_s = 0.0  # exponential moving average of the time for which a slot is held
        self._running: dict[float, int] = {}  # start time of the running retrievals, oldest first → their number
        self.present = 0
        self.waiting = 0
        self.retrieving = 0
        self.answering = 0

    @property
    def expected_wait_s(self) -> float:
        """Expected wait of the next request, from the queue's length and the durations of retrievals."""
        if self.retrieving < self._max_retrievals:
            return 0.0
        now = self._clock()  # a retrieval that already runs longer than the mean counts with its own duration
        durations = [(max(self._mean_s, now - started), count) for started, count in self._running.items()]
        if not all(duration for duration, _ in durations):
            return 0.0  # no duration is known yet
        return (self.waiting + 1) / sum(count / duration for duration, count in durations)

    def check(self, remaining_s: float | None) -> None:
        """Reject a retrieval that would wait too long if it arrived now.

        Args:
            remaining_s: until its deadline; None without a deadline.

        Raises:
            Overloaded: the expected wait is too long, for the service or for the deadline.
        """
        wait_s = float(f"{self.expected_wait_s:.2g}")  # an estimate; few distinct values make few distinct statuses
        if wait_s > self._max_queue_wait_s and self.waiting >= self._short_queue:
            raise Overloaded(
                f"{count_noun(self.waiting, 'request is', 'requests are')} waiting, and the expected wait is "
                f"{wait_s:.2g} s; ask again later",
                "queue",
                retry_after_s=wait_s,
            )
        if remaining_s is not None and wait_s >= remaining_s:
            raise Overloaded(
                f"the request would wait {wait_s:.2g} s, and its deadline is in {remaining_s:.2g} s; "
                f"ask again later or allow more time",
                "deadline",
                retry_after_s=wait_s,
            )

    @contextmanager
    def counted(self, *, answer: bool = False) -> Iterator[None]:
        """Count a request for as long as the block lasts.

        Raises:
            Overloaded: the process has as many requests, or answers, as it accepts.
        """
        if self.present >= self._max_requests:
            raise Overloaded(
                f"the process has {count_noun(self.present, 'request')}, as many as it accepts; ask again in a moment",
                "full",
            )
        if answer and self.answering >= self._max_answers:
            raise Overloaded(
                f"{count_noun(self.answering, 'answer is', 'answers are')} being written, as many as the process "
                "accepts; ask again in a moment",
                "answers",
            )
        self.present += 1
        self.answering += answer
        try:
            yield
        finally:
            self.present -= 1
            self.answering -= answer

    @asynccontextmanager
    async def slot(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[float]:
        """Wait for a slot and hold it for as long as the block lasts. Yield the seconds of the wait.

        Raises:
            DeadlinePassed: the deadline passed during the wait; nothing was started.
        """
        arrived = self._clock()
        self.waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self.waiting -= 1
        started = self._clock()
        self.retrieving += 1
        try:
            left_s = remaining_s()
            if left_s is not None and left_s <= 0:
                raise DeadlinePassed("the deadline passed while the request was waiting; allow more time")
            self._running[started] = self._running.get(started, 0) + 1
            try:
                yield started - arrived
            finally:  # a cancelled or failed retrieval counts too: it held the slot as well
                self._finish(started)
        finally:
            self.retrieving -= 1
            self._slots.release()

    def _finish(self, started: float) -> None:
        duration_s = self._clock() - started
        self._mean_s += (duration_s - self._mean_s) * (_SMOOTHING if self._mean_s else 1.0)
        self._running[started] -= 1
        if not self._running[started]:
            del self._running[started]
