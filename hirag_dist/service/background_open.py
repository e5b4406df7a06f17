"""Opening that may take minutes, in a thread that holds up no exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(make: Callable[[], T], discard: Callable[[T], None]) -> T:
    """Return what `make` does. When this is cancelled it does not wait.

    A thread of an executor is waited for when the process ends, so that a service that is told to stop while it copies
    a snapshot would be killed instead of ending by itself.

    Args:
        make: may block.
        discard: gets what was made for nobody, in a thread of its own.
    """
    here = asyncio.get_running_loop()
    made: asyncio.Future[T] = here.create_future()

    def work() -> None:
        try:
            result = make()
        except BaseException as error:  # whatever it is: who waits must not wait for ever
            _tell(here, made.set_exception, error)
        else:
            if not _tell(here, made.set_result, result):
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


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[[T], None], outcome: T) -> bool:
    """Settle a future from another thread. Return whether its loop is still there."""
    try:
        loop.call_soon_threadsafe(settle, outcome)
    except RuntimeError:
        return False
    return True
