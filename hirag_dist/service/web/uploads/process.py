"""A process that plans or makes an update: JSON on standard input, messages as JSON lines on standard output."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

logger = logging.getLogger(__name__)
_LINE_BYTES = 1 << 22


class UpdateProcess:
    """One run of the process. It ends when its standard input is closed, also if this process dies.

    Args:
        command: program and arguments.
        task: sent to it as one line of JSON.
        stop_s: seconds that it has to end after `cancel`; then it is killed.
    """

    def __init__(self, command: tuple[str, ...], task: Mapping[str, Any], stop_s: float) -> None:
        self._command = command
        self._task = task
        self._stop_s = stop_s
        self._process: asyncio.subprocess.Process | None = None
        self._cancelled = False
        self._killing: asyncio.Task[None] | None = None

    @property
    def cancelled(self) -> bool:
        """True after `cancel`."""
        return self._cancelled

    async def run(self, on_message: Callable[[Mapping[str, Any]], None]) -> int:
        """Run the process; call `on_message` with each of its messages. Return its exit status."""
        pipe = asyncio.subprocess.PIPE
        process = self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            limit=_LINE_BYTES,
            start_new_session=True,  # Ctrl-C on a terminal stops the service, which stops this process
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with suppress(ConnectionError):  # it has ended: its exit status says so
                process.stdin.write(json.dumps(self._task).encode() + b"\n")
                await process.stdin.drain()
            if self._cancelled:
                self._end(process)
            async for line in process.stdout:
                on_message(json.loads(line))
            return await process.wait()
        finally:
            if process.returncode is None:
                _kill(process)
                await process.wait()
            if self._killing is not None:
                self._killing.cancel()

    def cancel(self) -> None:
        """Ask the process to end: a build keeps its state."""
        if self._cancelled:
            return
        self._cancelled = True
        if self._process is not None:
            self._end(self._process)

    def _end(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        process.stdin.close()
        self._killing = asyncio.create_task(self._kill_later(process))

    async def _kill_later(self, process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(self._stop_s)
        logger.warning("the update did not end within %g s and is killed", self._stop_s)
        _kill(process)


def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # with its own processes
