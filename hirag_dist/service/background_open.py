"""Opening of an engine in a daemon thread: it may take minutes, and must not delay the exit of the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(make: Callable[[], T], discard: Callable[[T], None]) -> T:
    """Return the result of `make`. A cancellation does not wait for it.

    Python waits for the threads of an executor when the process ends, so a service that is stopped while it copies a
    snapshot would have to be killed.

    Args:
        make: may block.
        discard: called with a result that is no longer needed, in a thread of its own.
    """
    here = asyncio.get_running_loop()
    made: asyncio.Future[T] = here.create_future()

    def work() -> None:
        try:
            result = make()
        except BaseException as error:  # of any kind: the waiting task must end
            _settle(here, made.set_exception, error)
        else:
            if not _settle(here, made.set_result, result):
                discard(result)

    def unwanted(made: asyncio.Future[T]) -> None:
        if made.exception() is None:
            threading.Thread(target=discard, args=(made.result(),), name="discard", daemon=True).start()

    threading.Thread(target=work, name="opening", daemon=True).start()
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(unwanted)
        raise


def _settle(loop: asyncio.AbstractEventLoop, settle: Callable[[T], None], outcome: T) -> bool:
    """Settle a future from another thread. Return whether its loop still runs."""
    try:
        loop.call_soon_threadsafe(settle, outcome)
    except RuntimeError:
        return False
    return True
