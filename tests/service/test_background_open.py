"""Opening in a background thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from hirag_dist.service.hot_swap import in_daemon_thread


async def test_cancelled_it_does_not_wait_and_discards_what_comes_too_late() -> None:
    may_go_on, begun, discarded = threading.Event(), asyncio.Event(), asyncio.Event()
    loop, found = asyncio.get_running_loop(), []

    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        may_go_on.wait()
        return "engine"

    def discard(made: str) -> None:
        found.append(made)
        loop.call_soon_threadsafe(discarded.set)

    task = asyncio.create_task(in_daemon_thread(slow, discard))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not found
    may_go_on.set()
    await discarded.wait()
    assert found == ["engine"]


@pytest.mark.integration
def test_a_process_ends_while_something_is_opened() -> None:
    code = """
import asyncio, threading
from hirag_dist.service.hot_swap import in_daemon_thread
async def main():
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    def never():
        loop.call_soon_threadsafe(begun.set)
        threading.Event().wait()
    task = asyncio.create_task(in_daemon_thread(never, print))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
