"""Supervisor of several worker processes behind one port: start, restart, stop.

Workers are new interpreters, never forks, and each listens on the port itself (SO_REUSEPORT); the kernel spreads
connections over them. A worker gets its work as bytes on standard input, which then stays open for as long as the
supervisor lives: end of file signals that the supervisor has died. A worker reports one line of JSON through the file
descriptor that its last argument names: {"ready": ADDRESS}, or {"failed": MESSAGE, "exit_code": N}.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from hirag_dist.errors import BackendUnavailable, ConfigError, HiragError, ServiceError

logger = logging.getLogger(__name__)
_STEADY_S = 60.0  # time as ready after which earlier failures of a worker do not count
_MAX_FAILURES = 5  # in a row, of every worker, before the supervisor gives up
_MAX_LINE_BYTES = 65_536
_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """The command of a worker and its input.

    Attributes:
        command: program and arguments; the number of the file descriptor for reports is appended.
        work: bytes for its standard input.
        environ: its whole environment.
        name: in the log.
        optional: whether the service runs without it. It is restarted when it dies, but the supervisor gives up if all
            other workers fail.
    """

    command: Sequence[str]
    work: bytes
    environ: dict[str, str]
    name: str
    optional: bool = False


@dataclass(slots=True)
class _Worker:
    """A job and its current process."""

    job: WorkerJob
    process: subprocess.Popen[bytes] | None = None
    report: int = -1  # read end of its reports
    received: bytearray = field(default_factory=bytearray)
    ready: bool = False
    error: HiragError | None = None
    started_at: float = 0.0
    start_at: float | None = None  # time of its restart
    failures: int = 0  # in a row


class Supervisor:
    """Runs jobs until SIGTERM, SIGINT or SIGHUP; must be used in the main thread.

    Args:
        jobs: one per worker.
        drain_s: seconds that workers have to finish when they are stopped.
        grace_s: seconds after that until they are killed.
        ready: called once all workers are ready, with the address that they report.
        on_death: called with the job's number and the process id when a process has ended unexpectedly, before it is
            restarted.
        pause_s: before a worker that died is restarted; doubled at each further failure, up to `max_pause_s`.
    """

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        *,
        drain_s: float,
        grace_s: float = 5.0,
        ready: Callable[[str], None],
        on_death: Callable[[int, int], None] = lambda number, pid: None,
        pause_s: float = 0.5,
        max_pause_s: float = 30.0,
    ) -> None:
        self._workers = [_Worker(job) for job in jobs]
        self._stop_s = drain_s + grace_s
        self._ready = ready
        self._on_death = on_death
        self._pause_s = pause_s
        self._max_pause_s = max_pause_s
        self._selector = selectors.DefaultSelector()
        self._announced = False
        self._stopping = False
        self._kill_at: float | None = None  # while workers are stopping and before the rest is killed
        self._failed = False

    def run(self) -> bool:
        """Run until a signal. Return whether every worker ended without an error.

        Raises:
            HiragError: a worker failed before all were ready for the first time, with its reason.
        """
        with _signals() as signals:
            self._selector.register(signals, selectors.EVENT_READ)
            try:
                for worker in self._workers:
                    self._start(worker)
                while any(worker.process or worker.start_at is not None for worker in self._workers):
                    self._handle_events(signals)
            finally:
                self._kill()
                for worker in self._workers:
                    if worker.process is not None:
                        worker.process.wait()
                self._selector.close()
        if not self._announced:
            for worker in self._workers:
                if worker.error is not None:
                    raise worker.error
        return not self._failed

    def _handle_events(self, signals: socket.socket) -> None:
        """Wait for the next event and handle it."""
        for key, _ in self._selector.select(self._wait_s()):
            if key.fileobj is signals:
                for number in _received_signals(signals):
                    if number in _STOPS:
                        self._stop()
            else:
                self._read_report(key.data)
        for number, worker in enumerate(self._workers):
            if worker.process is not None and worker.process.poll() is not None:
                self._on_exit(number, worker)
        now = time.monotonic()
        for worker in self._workers:
            if worker.start_at is not None and now >= worker.start_at:
                self._start(worker)
        if self._kill_at is not None and now >= self._kill_at:
            self._kill()

    def _wait_s(self) -> float | None:
        times = [worker.start_at for worker in self._workers if worker.start_at is not None]
        if self._kill_at is not None:
            times.append(self._kill_at)
        return max(min(times) - time.monotonic(), 0.0) if times else None

    def _start(self, worker: _Worker) -> None:
        worker.start_at = None
        report = child_end = -1
        try:
            report, child_end = os.pipe()
            process = subprocess.Popen(
                [*worker.job.command, str(child_end)],
                stdin=subprocess.PIPE,
                pass_fds=(child_end,),
                env=worker.job.environ,
                process_group=0,  # the terminal's Ctrl-C is for the supervisor, which passes it on once
            )
        except OSError as error:
            if report >= 0:
                os.close(report)
            if not self._announced:
                raise ServiceError(f"{worker.job.name} cannot be started: {error}") from error
            message = "%s cannot be started: %s; another try in %g s"
            logger.error(message, worker.job.name, error, self._max_pause_s)  # noqa: TRY400 - an expected failure
            worker.start_at = time.monotonic() + self._max_pause_s
            return
        finally:
            if child_end >= 0:
                os.close(child_end)
        os.set_blocking(report, False)
        worker.process, worker.report, worker.started_at = process, report, time.monotonic()
        worker.ready = False
        worker.received.clear()
        self._selector.register(report, selectors.EVENT_READ, worker)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already; the next check handles that
            process.stdin.write(worker.job.work)
            process.stdin.flush()

    def _read_report(self, worker: _Worker) -> None:
        """Read what a worker has reported."""
        try:
            read = os.read(worker.report, _MAX_LINE_BYTES)
        except BlockingIOError:
            return
        if not read:
            self._selector.unregister(worker.report)
            return
        worker.received += read
        line, newline, _ = bytes(worker.received).partition(b"\n")
        if not newline or worker.ready or worker.error is not None:
            return
        report = json.loads(line)
        if "failed" in report:
            kind = ConfigError if report["exit_code"] == ConfigError.exit_code else ServiceError
            worker.error = kind(report["failed"])
            return
        worker.ready, worker.error = True, None
        if not self._announced and not self._stopping and all(each.ready for each in self._workers):
            self._announced = True
            self._ready(report["ready"])

    def _on_exit(self, number: int, worker: _Worker) -> None:
        """Clean up after a process that ended, and schedule a restart or stop the service."""
        assert worker.process is not None
        self._read_remaining_report(worker)
        process, worker.process = worker.process, None
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        code = process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        was_ready, worker.ready = worker.ready, False
        if self._stopping:
            if code not in (0, -signal.SIGTERM):  # SIGTERM kills a process that has not installed its handler yet
                logger.error("%s (process %d) %s while stopping", worker.job.name, process.pid, how)
                self._failed = True
            return
        try:
            self._on_death(number, process.pid)
        except Exception:  # a failing callback must not end the workers that serve
            logger.exception("the callback for the death of %s failed", worker.job.name)
        if not self._announced:
            if worker.error is None:
                worker.error = ServiceError(f"{worker.job.name} {how} before it was ready; its log says why")
            self._failed = True
            self._stop()
            return
        lifetime_s = time.monotonic() - worker.started_at
        worker.failures = 1 if was_ready and lifetime_s >= _STEADY_S else worker.failures + 1
        reason = f": {worker.error}" if worker.error is not None else ""
        worker.error = None
        pause_s = min(self._pause_s * 2 ** (worker.failures - 1), self._max_pause_s)
        required = [other for other in self._workers if not other.job.optional]
        if all(not other.ready and other.failures >= _MAX_FAILURES for other in required):
            logger.error(
                "%s (process %d) %s%s; no worker is left that serves", worker.job.name, process.pid, how, reason
            )
            self._failed = True
            self._stop()
            return
        logger.error(
            "%s (process %d) %s%s; it starts again in %g s", worker.job.name, process.pid, how, reason, pause_s
        )
        worker.start_at = time.monotonic() + pause_s

    def _read_remaining_report(self, worker: _Worker) -> None:
        while worker.report in self._selector.get_map():
            before = len(worker.received)
            self._read_report(worker)
            if len(worker.received) == before:
                break
        if worker.report in self._selector.get_map():
            self._selector.unregister(worker.report)
        os.close(worker.report)
        worker.report = -1

    def _stop(self) -> None:
        """Send SIGTERM to all workers: the first one starts the drain, a second one ends it."""
        if not self._stopping:
            self._stopping = True
            self._kill_at = time.monotonic() + self._stop_s
        for worker in self._workers:
            worker.start_at = None
            if worker.process is not None and worker.process.poll() is None:
                worker.process.send_signal(signal.SIGTERM)

    def _kill(self) -> None:
        self._kill_at = None
        for worker in self._workers:
            if worker.process is not None and worker.process.poll() is None:
                logger.error("%s (process %d) did not stop in time and is killed", worker.job.name, worker.process.pid)
                worker.process.kill()


def reserve(host: str, port: int) -> socket.socket:
    """Bind an address that workers share, without listening on it, and return the socket.

    Args:
        port: 0 takes a free one; `getsockname` of the socket says which.

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
            f"{host}:{port} cannot be listened on ({error.strerror}); choose another with --listen"
        ) from error
    return reserved


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that receives a byte for each signal that stops the service, and for SIGCHLD: its number."""
    reader, writer = socket.socketpair()
    reader.setblocking(False)
    writer.setblocking(False)
    numbers = (*_STOPS, signal.SIGCHLD)
    handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
    before = signal.set_wakeup_fd(writer.fileno())
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        reader.close()
        writer.close()


def _received_signals(signals: socket.socket) -> bytes:
    """Return the numbers of the signals received since the last call."""
    try:
        return signals.recv(4096)
    except BlockingIOError:
        return b""
