"""How many requests are worked at, who waits, and who had better not: one line before a few places."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded

_MEMORY = 0.1  # weight of the newest stay in a place, against those before it


class LoadShedder:
    """The places of one process, and the line before them.

    A retrieval is computing in one thread, so more at a time make nothing faster: a few have places, the rest wait in
    the order in which they came. Who would wait too long is told so at once, when asking elsewhere or later still
    helps, instead of joining a line that only grows: what is served stays fast whatever is asked.

    Args:
        places: retrievals at a time.
        max_wait_s: longest time that a request may be expected to wait, where the line is longer than `short`.
        most: requests of any kind in the process, those being sent included.
        answers: requests at a time that wait for a model to answer; they hold no place meanwhile.
        short: waiting requests that are no crowd however long they take: what is expected is a guess, and the first
            retrievals of a snapshot are slow.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        places: int,
        max_wait_s: float,
        most: int,
        answers: int,
        short: int = 16,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._places = places
        self._free = asyncio.Semaphore(places)
        self._max_wait_s = max_wait_s
        self._most = most
        self._short = short
        self._most_answers = answers
        self._clock = clock
        self._stay_s = 0.0  # how long a place is held, lately
        self._held: dict[float, int] = {}  # when the places held now were taken, oldest first → how many
        self.present = 0
        self.waiting = 0
        self.at_work = 0
        self.answering = 0

    @property
    def expected_wait_s(self) -> float:
        """How long the next request would wait for a place, going by the line and by how long places are held."""
        if self.at_work < self._places:
            return 0.0
        now = self._clock()  # a place that is held for longer than usual will not be free sooner than usual
        stays = [(max(self._stay_s, now - started), count) for started, count in self._held.items()]
        if not all(stay for stay, _ in stays):
            return 0.0  # nothing is known yet
        return (self.waiting + 1) / sum(count / stay for stay, count in stays)

    def check(self, remaining_s: float | None) -> None:
        """Look whether a retrieval that comes now would be done in time.

        Args:
            remaining_s: until its deadline; None for any time.

        Raises:
            Overloaded: the line is too long, for the service or for the deadline.
        """
        wait_s = self.expected_wait_s
        if wait_s > self._max_wait_s and self.waiting >= self._short:
            raise Overloaded(
                f"{count_noun(self.waiting, 'request is', 'requests are')} waiting and {wait_s:.2g} s would "
                "pass before this "
                "one's turn; ask again later",
                "queue",
                retry_after_s=wait_s,
            )
        if remaining_s is not None and wait_s >= remaining_s:
            raise Overloaded(
                f"{wait_s:.2g} s would pass before this request's turn, and its deadline is in {remaining_s:.2g} s; "
                f"ask again later or allow more time",
                "deadline",
                retry_after_s=wait_s,
            )

    @contextmanager
    def counted(self, *, answer: bool = False) -> Iterator[None]:
        """Let a request be in the process for as long as the block lasts.

        Raises:
            Overloaded: as many are here as may be.
        """
        if self.present >= self._most:
            raise Overloaded(
                f"{count_noun(self.present, 'request is', 'requests are')} here, as many as may be; ask again "
                "in a moment",
                "full",
            )
        if answer and self.answering >= self._most_answers:
            raise Overloaded(
                f"{count_noun(self.answering, 'answer is', 'answers are')} being written, as many as may be; "
                "ask again in a "
                "moment",
                "answers",
            )
        self.present += 1
        self.answering += answer
        try:
            yield
        finally:
            self.present -= 1
            self.answering -= answer

    def _leave(self, started: float) -> None:
        stay_s = self._clock() - started
        self._stay_s += (stay_s - self._stay_s) * (_MEMORY if self._stay_s else 1.0)
        self._held[started] -= 1
        if not self._held[started]:
            del self._held[started]

    @asynccontextmanager
    async def place(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[float]:
        """Wait for a place and hold it for as long as the block lasts. Yield how many seconds that took.

        Raises:
            DeadlinePassed: it did while waiting; nothing was started.
        """
        came = self._clock()
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        started = self._clock()
        self.at_work += 1
        try:
            left_s = remaining_s()
            if left_s is not None and left_s <= 0:
                raise DeadlinePassed("the deadline passed before it was this request's turn; allow more time")
            self._held[started] = self._held.get(started, 0) + 1
            try:
                yield started - came
            finally:  # however it ends: callers who give up and backends that hang are what a line is made of
                self._leave(started)
        finally:
            self.at_work -= 1
            self._free.release()
