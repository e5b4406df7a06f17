"""Graceful shutdown: signals that stop or hurry a service, and waiting that they interrupt."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

logger = logging.getLogger(__name__)
STOP_GRACE_S = 5.0  # after the drain, in which a process closes what it has open

_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def stop_signals(stop: asyncio.Event, hurry: asyncio.Event | None = None) -> Iterator[None]:
    """Set `stop` at the first SIGTERM, SIGINT or SIGHUP, and `hurry` at each further one, while the block lasts.

    Signals reach the main thread only; in another thread nothing is set.
    """

    def on_signal() -> None:
        if hurry is not None and stop.is_set():
            hurry.set()
        stop.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in _NUMBERS}
    for number in _NUMBERS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


def exit_within(seconds: float) -> None:
    """End this process after so many seconds, with code 1, unless it has ended by itself.

    A thread that waits for a file system or a database would keep it alive for as long as these take.
    """

    def end() -> None:
        logger.error("the service has not ended within %g s of its stop; its process is ended", seconds)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()


async def finished_before(event: asyncio.Event, task: asyncio.Task[None], *, cancel: bool = True) -> bool:
    """Wait until a task ends or an event is set. Return whether the task ended; its exception is raised.

    Args:
        cancel: whether the task is cancelled if the event comes first.
    """
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if cancel and not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.done() and not task.cancelled():
        await task
        return True
    return False
