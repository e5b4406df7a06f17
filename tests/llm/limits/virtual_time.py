"""An event loop whose clock jumps: hours of waiting pass as fast as what happens in them can be computed."""

from __future__ import annotations

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any


class Stuck(RuntimeError):
    """Everybody waits and nothing is due: in real time this would hang for ever."""


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for nothing: where a loop would sleep, its clock goes forward by as much."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise Stuck("every task waits, and no timer is due")
            self.now_s += max(timeout, 0.0)
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time, which begins at 0 and is the same in every run.

    Only timers move it. Threads and sockets would be given no time to do their part; simulations have none.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._jumping.now_s


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on a loop whose clock jumps to the next timer; `Stuck` where none comes."""

    @functools.wraps(test)
    def in_virtual_time(*arguments: Any, **named: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*arguments, **named))

    return in_virtual_time
