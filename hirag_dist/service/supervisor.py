"""Supervisor of several worker processes behind one port: start, restart, stop; and signals that stop a process.

Workers are new interpreters, never forks, and each listens on the port itself (SO_REUSEPORT); the kernel spreads
connections over them. A worker gets its work as bytes on standard input, which then stays open for as long as the
supervisor lives: end of file signals that the supervisor has died. A worker reports one line of JSON on standard
output: {"ready": ADDRESS}, or {"failed": MESSAGE, "exit_code": N}.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import socket
import threading
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from hirag_dist.errors import BackendUnavailable, ConfigError, HiragError, ServiceError

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


logger = logging.getLogger(__name__)
_STEADY_S = 60.0  # time as ready after which earlier failures of a worker do not count
_MAX_FAILURES = 5  # consecutive failures of every required worker, before the supervisor gives up


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The command of a worker and its input.

    Attributes:
        work: bytes for its standard input.
        required: whether the supervisor gives up when this worker and all other required ones keep failing.
    """

    command: Sequence[str]
    work: bytes
    environ: dict[str, str]
    name: str
    required: bool = True


@dataclass(slots=True)
class _Worker:
    """A job and its current process."""

    job: WorkerJob
    process: Process | None = None
    ready: bool = False
    error: HiragError | None = None
    failures: int = 0  # consecutive


class Supervisor:
    """Runs jobs until SIGTERM, SIGINT or SIGHUP; must be used in the main thread.

    Args:
        jobs: one per worker.
        drain_s: seconds that workers have to finish when they are stopped.
        grace_s: seconds after that until they are killed.
        ready: called once all workers are ready, with the address that they report.
        on_death: called with the process id when a process has ended unexpectedly, before it is restarted.
        pause_s: seconds before a worker that died is restarted; doubled at each further failure, up to `max_pause_s`.
    """

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        *,
        drain_s: float,
        grace_s: float = 5.0,
        ready: Callable[[str], None],
        on_death: Callable[[int], None] = lambda pid: None,
        pause_s: float = 0.5,
        max_pause_s: float = 30.0,
    ) -> None:
        self._workers = [_Worker(job) for job in jobs]
        self._stop_s = drain_s + grace_s
        self._on_ready = ready
        self._on_death = on_death
        self._pause_s = pause_s
        self._max_pause_s = max_pause_s
        self._announced = False
        self._failed = False
        self._stop = asyncio.Event()

    def is_ready(self) -> bool:
        """Return whether a required worker accepts requests."""
        return not self._stop.is_set() and any(worker.ready and worker.job.required for worker in self._workers)

    async def run(self) -> bool:
        """Run until a signal. Return whether every worker ended without an error.

        Raises:
            HiragError: a worker failed before all were ready for the first time, with its reason.
        """
        hurry = asyncio.Event()
        with stop_signals(self._stop, hurry):
            ending = asyncio.create_task(self._end(hurry))
            try:
                await asyncio.gather(*map(self._keep, self._workers))
            finally:
                ending.cancel()
        if not self._announced:
            for worker in self._workers:
                if worker.error is not None:
                    raise worker.error
        return not self._failed

    async def _end(self, hurry: asyncio.Event) -> None:
        """Send SIGTERM to all workers at the first signal, which starts the drain, and at the second, which ends it."""
        await self._stop.wait()
        self._signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stop_s):
                await hurry.wait()
                self._signal(signal.SIGTERM)
                await asyncio.Event().wait()
        logger.error("some workers did not stop in time and are killed")
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            if worker.process is not None:
                with contextlib.suppress(ProcessLookupError):  # it has just ended
                    worker.process.send_signal(number)

    async def _keep(self, worker: _Worker) -> None:
        """Run a worker's process, and another one when it ends unexpectedly, until the service stops."""
        clock = asyncio.get_running_loop().time
        while not self._stop.is_set():
            began = clock()
            how = await self._run_process(worker)
            was_ready, worker.ready = worker.ready, False
            if self._stop.is_set():
                return
            reason = "" if worker.error is None else f": {worker.error}"
            if not self._announced:
                if worker.error is None:
                    worker.error = ServiceError(f"{how} before it was ready; its log says why")
                self._give_up()
                return
            worker.error = None
            steady = was_ready and clock() - began >= _STEADY_S
            worker.failures = 1 if steady else worker.failures + 1
            required = [other for other in self._workers if other.job.required]
            if all(not other.ready and other.failures >= _MAX_FAILURES for other in required):
                logger.error("%s%s; no worker is left that serves", how, reason)
                self._give_up()
                return
            pause_s = min(self._pause_s * 2 ** (worker.failures - 1), self._max_pause_s)
            logger.error("%s%s; it starts again in %g s", how, reason, pause_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stop.wait()

    def _give_up(self) -> None:
        self._failed = True
        self._stop.set()

    async def _run_process(self, worker: _Worker) -> str:
        """Run a process of a worker to its end. Return how it ended, in words."""
        job = worker.job
        try:
            process = await asyncio.create_subprocess_exec(
                *job.command,
                stdin=PIPE,
                stdout=PIPE,
                env=job.environ,
                process_group=0,  # the terminal's Ctrl-C is for the supervisor, which passes it on once
            )
        except OSError as error:
            return f"{job.name} cannot be started ({error})"
        assert process.stdin is not None
        assert process.stdout is not None
        worker.process = process
        if self._stop.is_set():  # during the start
            self._signal(signal.SIGTERM)
        process.stdin.write(job.work)
        async for line in process.stdout:
            self._read_report(worker, line)
        code = await process.wait()
        worker.process = None
        process.stdin.close()
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        if not self._stop.is_set():
            self._on_death(process.pid)
        elif code not in (0, -signal.SIGTERM):  # SIGTERM kills a process that has not installed its handler yet
            logger.error("%s (process %d) %s while stopping", job.name, process.pid, how)
            self._failed = True
        return f"{job.name} (process {process.pid}) {how}"

    def _read_report(self, worker: _Worker, line: bytes) -> None:
        try:
            report = json.loads(line)
        except ValueError:  # printed by a library
            return
        if "failed" in report:
            kind = ConfigError if report["exit_code"] == ConfigError.exit_code else ServiceError
            worker.error = kind(report["failed"])
            return
        worker.ready, worker.error = True, None
        if not self._announced and not self._stop.is_set() and all(each.ready for each in self._workers):
            self._announced = True
            self._on_ready(report["ready"])


def reserve(host: str, port: int, option: str = "--listen") -> socket.socket:
    """Bind an address that workers share, without listening on it, and return the socket.

    Args:
        port: 0 takes a free one; `getsockname` of the socket says which.
        option: Option of the command line that has the address, for errors.

    Raises:
        BackendUnavailable: it cannot be bound.
    """
    reserved: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        reserved = socket.socket(family, kind, protocol)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            reserved.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # Connections of an earlier service may linger. SO_REUSEADDR is a last resort: with it other programs
            # may bind the address until a worker listens.
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(address)
    except OSError as error:
        if reserved is not None:
            reserved.close()
        raise BackendUnavailable(
            f"{host}:{port} cannot be listened on ({error.strerror}); choose another with {option}"
        ) from error
    return reserved
