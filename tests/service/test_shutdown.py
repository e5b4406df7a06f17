"""Signals that stop a service, and waiting that they interrupt."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from hirag_dist.service.shutdown import finished_before, stop_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_first_signal_stops_and_the_second_hurries(number: signal.Signals) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)  # another test of this process may have left a handler
    with stop_signals(stop, hurry):
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 10)
        assert not hurry.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(hurry.wait(), 10)
    assert signal.signal(number, before) == default


async def test_a_task_that_ends_before_the_event() -> None:
    async def work() -> None:
        await asyncio.sleep(0)

    assert await finished_before(asyncio.Event(), asyncio.create_task(work()))


@pytest.mark.parametrize("cancel", [True, False])
async def test_an_event_before_the_task(cancel: bool) -> None:
    event, forever = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        await forever.wait()

    task = asyncio.create_task(waits())
    event.set()
    assert not await finished_before(event, task, cancel=cancel)
    assert task.cancelled() == cancel
    forever.set()
    await asyncio.gather(task, return_exceptions=True)
