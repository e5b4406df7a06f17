"""The deadline of a question whose work is done in steps, between which the event loop serves other questions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from hirag_dist.core.arrays import Steps
from hirag_dist.types import Retrieval

_TURN_S = 0.002  # of uninterrupted work on one question

T = TypeVar("T")


class DeadlineExceeded(Exception):
    """No time is left for the work in progress."""


class CooperativeDeadline:
    """Runs the steps of a question's work, yields to the event loop between them, and stops at the deadline."""

    def __init__(self, clock: Callable[[], float], deadline_s: float | None) -> None:
        self._clock = clock
        self._turn_began = clock()
        self._ends_at = None if deadline_s is None else self._turn_began + deadline_s

    @property
    def left_s(self) -> float | None:
        """Seconds left; None without a deadline."""
        return None if self._ends_at is None else max(self._ends_at - self._clock(), 0.0)

    async def check(self) -> None:
        """Yield to the event loop when this question's turn is over.

        Raises:
            DeadlineExceeded: the deadline has passed.
        """
        await self._yield()
        if self._ends_at is not None and self._clock() > self._ends_at:
            raise DeadlineExceeded

    async def run_in_thread(self, work: Callable[[], T]) -> T:
        """Run work in a thread. The thread continues when the deadline ends the wait for it.

        Raises:
            DeadlineExceeded: the deadline passed before it was done.
        """
        try:
            async with asyncio.timeout(self.left_s):
                return await asyncio.to_thread(work)
        except TimeoutError:
            raise DeadlineExceeded from None

    async def run(self, steps: Steps[T], *, to_end: bool = False) -> T:
        """Run long work in turns.

        Args:
            to_end: past the deadline if need be: for work of bounded length.

        Raises:
            DeadlineExceeded: the deadline passed before it was done.
        """
        between = self._yield if to_end else self.check
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            await between()

    async def _yield(self) -> None:
        if self._clock() - self._turn_began > _TURN_S:
            await asyncio.sleep(0)
            self._turn_began = self._clock()


async def lookup_in_time(work: Awaitable[T]) -> T:
    """Return the result of a look-up. Raises TimeoutError where the deadline passed before it was there."""
    try:
        return await work
    except DeadlineExceeded:
        raise TimeoutError("the deadline passed before the look-up was done; allow more time") from None


@asynccontextmanager
async def in_time(left_s: float | None) -> AsyncIterator[None]:
    """Cancel the block when the time is up; it then raises TimeoutError."""
    try:
        async with asyncio.timeout(left_s) as limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError("the deadline passed before every part was read; allow more time") from error
        raise


def nothing_in_time(retrieval: Retrieval) -> str:
    """Return the reason why nothing was retrieved before the deadline."""
    if "search" not in retrieval.timings_ms:
        waited_s = retrieval.timings_ms.get("embed", 0.0) / 1e3
        return (
            f"the deadline passed while the question was embedded ({waited_s:.3g} s): the endpoint of llm.roles.embed "
            "did not answer; see whether it is up, or allow more time"
        )
    return f"the deadline passed before anything was found (cut off: {', '.join(retrieval.partial)}); allow more time"
