"""Several processes behind one port: started, watched, started again, stopped.

Workers are new interpreters, never forks, and each listens on the port itself (SO_REUSEPORT); the kernel spreads
connections over them. A worker gets its work as bytes on standard input, which then stays open for as long as the
supervisor lives: its end tells a worker that nobody is left to look after it. What a worker has to say comes as one
line of JSON through the file descriptor that its last argument names: {"ready": ADDRESS}, or {"failed": MESSAGE,
"exit_code": N}.
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

_LOG = logging.getLogger(__name__)
_STEADY_S = 60.0  # of service, after which earlier deaths are forgotten
_MOST_FAILURES = 5  # in a row, of every worker, before the supervisor gives up
_LONGEST_LINE = 65_536


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What a worker runs.

    Attributes:
        command: program and arguments; the number of the file descriptor to report through is put behind them.
        work: bytes for its standard input.
        environ: its whole environment.
        name: in the log.
        aside: whether the service goes on without it: it is started again when it dies, but is not what keeps the
            supervisor from giving up.
    """

    command: Sequence[str]
    work: bytes
    environ: dict[str, str]
    name: str
    aside: bool = False


@dataclass(slots=True)
class _Worker:
    """A job and the process that does it at present."""

    job: WorkerJob
    process: subprocess.Popen[bytes] | None = None
    report: int = -1  # read end of its reports
    heard: bytearray = field(default_factory=bytearray)
    ready: bool = False
    error: HiragError | None = None
    started_at: float = 0.0
    start_at: float | None = None  # when it is started again
    failures: int = 0  # in a row


class Supervisor:
    """Runs jobs until SIGTERM or SIGINT; must be used in the main thread.

    Args:
        jobs: one a worker.
        drain_s: seconds that workers have to finish when they are stopped.
        grace_s: seconds after that until they are killed.
        ready: called once all workers are ready, with the address that they report.
        died: called with the job's place when its process has ended unasked, before it is started again.
        pause_s: before a worker that died is started again; doubled at each further death, up to `longest_pause_s`.
    """

    def __init__(
        self,
        jobs: Sequence[WorkerJob],
        *,
        drain_s: float,
        grace_s: float = 5.0,
        ready: Callable[[str], None],
        died: Callable[[int, int], None] = lambda place, pid: None,
        pause_s: float = 0.5,
        longest_pause_s: float = 30.0,
    ) -> None:
        self._workers = [_Worker(job) for job in jobs]
        self._stop_s = drain_s + grace_s
        self._ready = ready
        self._died = died
        self._pause_s = pause_s
        self._longest_pause_s = longest_pause_s
        self._selector = selectors.DefaultSelector()
        self._announced = False
        self._stopping = False
        self._kill_at: float | None = None  # while workers are being stopped and none had to be killed
        self._failed = False

    def run(self) -> bool:
        """Serve. Return whether every worker ended well.

        Raises:
            HiragError: a worker failed before all were ready for the first time, with its reason.
        """
        with _signals() as heard:
            self._selector.register(heard, selectors.EVENT_READ)
            try:
                for worker in self._workers:
                    self._start(worker)
                while any(worker.process or worker.start_at is not None for worker in self._workers):
                    self._turn(heard)
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

    def _turn(self, heard: socket.socket) -> None:
        """Wait for the next thing to happen, and do what it asks for."""
        for key, _ in self._selector.select(self._wait_s()):
            if key.fileobj is heard:
                for number in _drained(heard):
                    if number in (signal.SIGTERM, signal.SIGINT):
                        self._stop()
            else:
                self._listen(key.data)
        for place, worker in enumerate(self._workers):
            if worker.process is not None and worker.process.poll() is not None:
                self._ended(place, worker)
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
        report = theirs = -1
        try:
            report, theirs = os.pipe()
            process = subprocess.Popen(
                [*worker.job.command, str(theirs)],
                stdin=subprocess.PIPE,
                pass_fds=(theirs,),
                env=worker.job.environ,
                process_group=0,  # the terminal's Ctrl-C is for the supervisor, which passes it on once
            )
        except OSError as error:
            if report >= 0:
                os.close(report)
            if not self._announced:
                raise ServiceError(f"{worker.job.name} cannot be started: {error}") from error
            _LOG.error("%s cannot be started: %s; another try in %g s", worker.job.name, error, self._longest_pause_s)
            worker.start_at = time.monotonic() + self._longest_pause_s
            return
        finally:
            if theirs >= 0:
                os.close(theirs)
        os.set_blocking(report, False)
        worker.process, worker.report, worker.started_at = process, report, time.monotonic()
        worker.ready = False
        worker.heard.clear()
        self._selector.register(report, selectors.EVENT_READ, worker)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it is dead already, and will be found so
            process.stdin.write(worker.job.work)
            process.stdin.flush()

    def _listen(self, worker: _Worker) -> None:
        """Take in what a worker reports."""
        try:
            read = os.read(worker.report, _LONGEST_LINE)
        except BlockingIOError:
            return
        if not read:
            self._selector.unregister(worker.report)
            return
        worker.heard += read
        line, newline, _ = bytes(worker.heard).partition(b"\n")
        if not newline or worker.ready or worker.error is not None:
            return
        said = json.loads(line)
        if "failed" in said:
            kind = ConfigError if said["exit_code"] == ConfigError.exit_code else ServiceError
            worker.error = kind(said["failed"])
            return
        worker.ready, worker.error = True, None
        if not self._announced and not self._stopping and all(each.ready for each in self._workers):
            self._announced = True
            self._ready(said["ready"])

    def _ended(self, place: int, worker: _Worker) -> None:
        """Bury a process, and decide whether there will be another."""
        assert worker.process is not None
        self._listen_to_the_end(worker)
        process, worker.process = worker.process, None
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        code = process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        was_ready, worker.ready = worker.ready, False
        if self._stopping:
            if code not in (0, -signal.SIGTERM):  # SIGTERM ends one that has not come to listen to it yet
                _LOG.error("%s (process %d) %s while stopping", worker.job.name, process.pid, how)
                self._failed = True
            return
        try:
            self._died(place, process.pid)
        except Exception:  # what is only told of it must not end the workers that serve
            _LOG.exception("the death of %s was not taken down", worker.job.name)
        if not self._announced:
            if worker.error is None:
                worker.error = ServiceError(f"{worker.job.name} {how} before it was ready; its log says why")
            self._failed = True
            self._stop()
            return
        lived_s = time.monotonic() - worker.started_at
        worker.failures = 1 if was_ready and lived_s >= _STEADY_S else worker.failures + 1
        said = f": {worker.error}" if worker.error is not None else ""
        worker.error = None
        pause_s = min(self._pause_s * 2 ** (worker.failures - 1), self._longest_pause_s)
        serving = [each for each in self._workers if not each.job.aside]
        if all(not each.ready and each.failures >= _MOST_FAILURES for each in serving):
            _LOG.error("%s (process %d) %s%s; no worker is left that serves", worker.job.name, process.pid, how, said)
            self._failed = True
            self._stop()
            return
        _LOG.error("%s (process %d) %s%s; it starts again in %g s", worker.job.name, process.pid, how, said, pause_s)
        worker.start_at = time.monotonic() + pause_s

    def _listen_to_the_end(self, worker: _Worker) -> None:
        while worker.report in self._selector.get_map():
            before = len(worker.heard)
            self._listen(worker)
            if len(worker.heard) == before:
                break
        if worker.report in self._selector.get_map():
            self._selector.unregister(worker.report)
        os.close(worker.report)
        worker.report = -1

    def _stop(self) -> None:
        """Ask all workers to drain; a second time, to hurry."""
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
                _LOG.error("%s (process %d) did not stop in time and is killed", worker.job.name, worker.process.pid)
                worker.process.kill()


def reserve(host: str, port: int) -> socket.socket:
    """Bind an address for workers to share, without listening on it, and return the socket that holds it.

    Args:
        port: 0 takes a free one; `getsockname` of the socket says which.

    Raises:
        BackendUnavailable: it cannot be had.
    """
    held: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        held = socket.socket(family, kind, protocol)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        try:
            held.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            # Connections of an earlier service may linger. Not from the beginning: until a worker listens, others
            # may take an address that is bound like this.
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held.bind(address)
    except OSError as error:
        if held is not None:
            held.close()
        raise BackendUnavailable(
            f"{host}:{port} cannot be listened on ({error.strerror}); choose another with --listen"
        ) from error
    return held


@contextmanager
def _signals() -> Iterator[socket.socket]:
    """Yield a socket that has a byte for each SIGTERM, SIGINT or SIGCHLD: its number."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
    handlers = {number: signal.signal(number, lambda *_: None) for number in numbers}
    before = signal.set_wakeup_fd(theirs.fileno())
    try:
        yield ours
    finally:
        signal.set_wakeup_fd(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        ours.close()
        theirs.close()


def _drained(heard: socket.socket) -> bytes:
    try:
        return heard.recv(4096)
    except BlockingIOError:
        return b""
