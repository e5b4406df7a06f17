"""Work in the service's loop and in a thread of its own: the same to see, but for where it is done."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import pytest

from hirag_dist.service.engine import EngineRunner, ThreadEngineRunner


@pytest.fixture(params=[EngineRunner, ThreadEngineRunner])
async def runner(request: pytest.FixtureRequest) -> AsyncIterator[EngineRunner]:
    made: EngineRunner = request.param()
    yield made
    await made.close()


class Work:
    """Work that goes on until it is cancelled, and then until it may stop."""

    def __init__(self) -> None:
        self.began, self.may_stop, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.may_stop.set()

    async def forever(self) -> None:
        self.began.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.to_thread(self.may_stop.wait)
            self.ended.set()

    async def items(self) -> AsyncGenerator[int, None]:
        for number in range(3):
            yield number
        await self.forever()

    async def begun(self) -> None:
        """Return when it has begun, in whatever thread."""
        while not await asyncio.to_thread(self.began.wait, 0.01):
            pass


async def test_what_it_returns_and_raises(runner: EngineRunner) -> None:
    async def well() -> str:
        await asyncio.sleep(0)
        return threading.current_thread().name

    async def badly() -> None:
        raise ZeroDivisionError

    own = threading.current_thread().name
    assert await runner.run(well()) == ("engine" if isinstance(runner, ThreadEngineRunner) else own)
    with pytest.raises(ZeroDivisionError):
        await runner.run(badly())


async def test_cancelled_work_has_ended_when_the_cancellation_goes_on(runner: EngineRunner) -> None:
    work = Work()
    work.may_stop.clear()
    task = asyncio.create_task(runner.run(work.forever()))
    await work.begun()
    for _ in range(2 if isinstance(runner, ThreadEngineRunner) else 1):  # a second one does not go ahead of the work
        task.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert not task.done()
    work.may_stop.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended.is_set()


async def test_a_stream_does_not_wait_for_its_reader(runner: EngineRunner) -> None:
    work = Work()
    async with aclosing(runner.stream(work.items)) as items:
        assert await anext(items) == 0
        await work.begun()  # it is past the last item, and only one was read
        assert [await anext(items), await anext(items)] == [1, 2]
    assert work.ended.is_set()


async def test_a_stream_whose_reader_is_cancelled(runner: EngineRunner) -> None:
    work = Work()

    async def read() -> None:
        async with aclosing(runner.stream(work.items)) as items:
            async for _ in items:
                pass

    task = asyncio.create_task(read())
    await work.begun()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended.is_set()


async def test_computing_does_not_hold_up_the_loop_that_accepts_calls() -> None:
    before = sys.getswitchinterval()
    runner = ThreadEngineRunner()
    computing, over = threading.Event(), threading.Event()

    async def compute() -> int:
        computing.set()
        rounds = 0
        while not over.is_set():
            rounds += 1
        return rounds

    task = asyncio.create_task(runner.run(compute()))
    while not computing.is_set():
        await asyncio.sleep(0)
    for _ in range(100):  # each of these rounds of the loop needs the interpreter
        await asyncio.sleep(0)
    over.set()
    assert await task > 0
    await runner.close()
    assert sys.getswitchinterval() == before
