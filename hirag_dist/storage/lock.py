"""One build at a time on an index: a lock file with a heartbeat, taken over when its holder is dead.

A holder is dead when its process is known to have ended, or when its lease has expired: no heartbeat for
`LockTiming.dead_after_s`. No wall clock decides that, so a clock that jumps neither ends a lease nor keeps one for
ever. Under the holder's kernel the age of a heartbeat is read from the monotonic clock that both share. Elsewhere the
lock is watched: it has expired when it has not changed for that time by the observer's monotonic clock.

A host name and a process id identify no process: containers share host names and each has a process 1, and a process
id is used again. A process is identified by the boot of its kernel, its pid namespace, its id there and its start
time. Whether it lives can be known only under the same kernel and in the same namespace; elsewhere the lease decides.

On S3 every write of the lock is conditional on the version that was read, so of two builds that start at the same
moment one gets it, and a late write of a build that was taken over is refused. On a folder, a lock of the operating
system makes the check and the write exclusive between processes, and `fenced` holds it for a whole block. On other
filesystems of pyarrow (GCS, Azure, HDFS) neither exists: two builds that start within the same second can both get
the lock until one of them finds the other's heartbeat. The lock carries an epoch that rises with every holder, so that
both then agree on the later one.
"""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from types import TracebackType

from hirag_dist.errors import IndexBusy, StoreError
from hirag_dist.storage.layout import CACHE, LEDGER, LOCK, WORK
from hirag_dist.storage.store import Store
from hirag_dist.storage.store_errors import store_error

logger = logging.getLogger(__name__)
_POLL_S = 1.0  # between two attempts at a lock that another build holds
_GUARD_POLL_S = 0.05
_GUARD_TIMEOUT_S = 10.0  # a process needs the guard for milliseconds
GUARD = f".{LOCK}.guard"  # in a local folder since its first build began
_OTHER_VERSION = '"0"'  # an ETag that no object has


_STATE, _START_TIME = 0, 19  # of /proc/PID/stat, counted from the field after the name
_ENDED = ("Z", "X")


@dataclass(frozen=True, slots=True)
class HolderProcess:
    """A process and its machine. Where the system has no /proc (macOS), only host and pid are known.

    Attributes:
        boot: id of the kernel's boot; empty: unknown.
        clock: boot and time namespace, between whose processes a monotonic clock can be compared; empty: unknown.
        pid_namespace: the namespace of the process id; empty: unknown.
        started: start time in clock ticks since boot; 0: unknown.
    """

    host: str
    pid: int
    boot: str = ""
    clock: str = ""
    pid_namespace: str = ""
    started: int = 0

    def has_ended(self, observer: HolderProcess) -> bool:
        """Return whether the process is known to have ended; False also where that cannot be known."""
        known = (self.host, self.boot, self.pid_namespace)
        if not all(known) or not self.started or known != (observer.host, observer.boot, observer.pid_namespace):
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass
        state, started = _stat(self.pid)
        return state in _ENDED or (started != 0 and started != self.started)


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The content of the lock file.

    Attributes:
        since: when the build began, for people.
        beat: seconds since the epoch at the last heartbeat, by the holder's clock.
        uptime: seconds of the holder's monotonic clock at the last heartbeat.
        epoch: rises with every holder.
    """

    process: HolderProcess
    since: str
    token: str
    beat: float
    uptime: float
    epoch: int

    def encode(self) -> bytes:
        """Return the content of the lock file."""
        fields = asdict(self)
        fields |= fields.pop("process")
        return json.dumps(fields, sort_keys=True, ensure_ascii=False, indent=1).encode()

    @classmethod
    def decode(cls, data: bytes) -> LockHolder | None:
        """Return the holder of a lock file, None where a crash left an unreadable one."""
        try:
            fields = json.loads(data)
            process = HolderProcess(
                str(fields["host"]),
                int(fields["pid"]),
                str(fields.get("boot", "")),
                str(fields.get("clock", "")),
                str(fields.get("pid_namespace", "")),
                int(fields.get("started", 0)),
            )
            return cls(
                process,
                str(fields["since"]),
                str(fields["token"]),
                float(fields["beat"]),
                float(fields.get("uptime", 0)),
                int(fields.get("epoch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None


def own_process() -> HolderProcess:
    """Return the identity of the calling process."""
    boot = _boot()
    clock = f"{boot} {_namespace('time')}".rstrip()
    return HolderProcess(socket.gethostname(), os.getpid(), boot, clock, _namespace("pid"), _stat(os.getpid())[1])


@cache
def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _namespace(kind: str) -> str:
    """Return the id of a namespace of this process, such as "pid:[4026531836]"; empty where the system has none."""
    try:
        return str(Path(f"/proc/self/ns/{kind}").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, int]:
    """Return the state and the start time of a process; ("", 0) where they cannot be read."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
        fields = text.rpartition(b")")[2].split()  # a name may have spaces and parentheses
        return fields[_STATE].decode(), int(fields[_START_TIME])
    except (OSError, IndexError, ValueError):
        return "", 0


@dataclass(frozen=True, slots=True)
class LockTiming:
    """The times of a lock, in seconds.

    Attributes:
        beat_s: between two heartbeats.
        dead_after_s: age of the last heartbeat from which a holder may be taken over.
    """

    beat_s: float = 10.0
    dead_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Watch:
    """The observation of another build's lock, by the observer's monotonic clock."""

    version: str | None  # version of the lock file
    since: float  # when this version was read first
    ends_at: float  # the end of the observation that is due even without --wait; minus infinity for none


class BuildLock:
    """The lock of a build on an index; a context manager.

    Raises:
        IndexBusy: on entering, when another live build holds the index, and still does after `wait_s`.
    """

    def __init__(
        self,
        store: Store,
        wait_s: float = 0.0,
        *,
        timing: LockTiming | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to lock an index.

        Args:
            wait_s: wait so long for another build to end.
            clock: seconds since the epoch; it may jump.
            monotonic: seconds of a clock that never jumps and that all processes under one kernel share.
            sleep: waits some seconds.
        """
        self._store = store
        self._wait_s = wait_s
        self._timing = timing or LockTiming()
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._token = uuid.uuid4().hex
        self._process = own_process()
        self._record: LockHolder | None = None  # as written last
        self._watch: _Watch | None = None  # of another build's lock
        self._writing = threading.RLock()  # the heartbeat and the build write the same file
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BuildLock:
        give_up_at = self._monotonic() + self._wait_s
        warned = False
        while (busy := self._take()) is not None:
            watched_until = self._watch.ends_at if self._watch is not None else -math.inf
            left = max(give_up_at, watched_until) - self._monotonic()
            if left <= 0:
                hint = "wait for it (--wait SECONDS), or end it" if not self._wait_s else "or end it"
                raise IndexBusy(f"{busy}; {hint}")
            if not warned:
                logger.warning("%s; waiting up to %.0f s", busy, left)
                warned = True
            self._sleep(min(_POLL_S, left))
        self._thread = threading.Thread(target=self._keep_beating, daemon=True, name="build-lock")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        try:
            with self._guard():
                if self._store.local is not None:
                    self._confirm()
                    self._store.delete(LOCK)
                elif self._renew():  # S3 has no conditional delete: a fresh heartbeat keeps others out
                    self._store.delete(LOCK)
        except IndexBusy as failure:  # the lock is left to the build that took over
            if self._lost is None:
                logger.warning("the lock of %s stays behind: %s", self._store.uri, failure)
        except StoreError as failure:  # must not hide the build's own error; the next build takes over
            logger.warning("the lock of %s stays behind: %s", self._store.uri, failure)

    def is_held(self) -> bool:
        """Return whether a live build holds the index, without taking the lock.

        Of a build on another machine it compares wall clocks, since it does not wait: the lock itself never does.
        """
        holder, _ = self._read()
        if holder is None or holder.process.has_ended(self._process):
            return False
        age = self._age(holder)
        return (abs(self._clock() - holder.beat) if age is None else age) < self._timing.dead_after_s

    def check(self) -> None:
        """Return while this build holds the index.

        Raises:
            IndexBusy: another build has taken it over: nothing may be published or marked as done any more.
            StoreError: the lock cannot be read.
        """
        with self.fenced():
            pass

    @contextmanager
    def fenced(self) -> Iterator[None]:
        """Check the lock and, on a folder, exclude a take-over until the block ends.

        On an object store a build that is stopped inside the block can be taken over there: write what must not be late
        with `Store.replace`, on a version read before the block.

        Raises:
            IndexBusy: another build has taken the index over.
            StoreError: the lock cannot be read.
        """
        with self._guard():
            self._confirm()
            yield

    def _take(self) -> str | None:
        """Become the holder, or return a message about the build that is."""
        with self._guard():
            now = self._clock()
            holder, version = self._read()
            if holder is not None and not self._is_free(holder, version):
                process, silent_s = holder.process, max(0.0, now - holder.beat)
                return (
                    f"{self._store.uri} is being built by process {process.pid} on {process.host} since "
                    f"{holder.since}, last heard of {silent_s:.0f} s ago"
                )
            if holder is not None:
                logger.warning(
                    "taking over %s from process %d on %s", self._store.uri, holder.process.pid, holder.process.host
                )
            # In milliseconds, so that epochs keep rising after the lock was removed.
            epoch = max(holder.epoch + 1 if holder else 1, int(now * 1000))
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            record = LockHolder(self._process, since, self._token, now, self._monotonic(), epoch)
            try:
                written = self._write(record, version)
            except StoreError as error:
                if "the disk is full" not in str(error):
                    raise
                raise StoreError(
                    f"{error}; no build holds the index now, so that its folders {WORK} and {CACHE} may be removed by "
                    f"hand, but never {LEDGER}"
                ) from error
            if not written:
                return f"another build of {self._store.uri} started at the same moment"
            self._check_conditions(record)
        return None

    def _is_free(self, holder: LockHolder, version: str | None) -> bool:
        """Return whether a holder is known to be dead, by its process or its lease; go on watching it if not."""
        if holder.process.has_ended(self._process):
            return True
        now, dead_after = self._monotonic(), self._timing.dead_after_s
        age = self._age(holder)
        if age is not None and age >= dead_after:
            return True
        if self._watch is None or self._watch.version != version:
            # Where the wall clocks say that it is not recent, or is of the future, it is watched without --wait too:
            # otherwise a build that never waits would find the lock of a dead one for ever.
            first = self._watch is None
            doubtful = first and age is None and not abs(self._clock() - holder.beat) < dead_after  # it may be NaN
            self._watch = _Watch(version, now, now + dead_after if doubtful else -math.inf)
        return now - self._watch.since >= dead_after

    def _age(self, holder: LockHolder) -> float | None:
        """Return the seconds since a holder's heartbeat, None where the two processes share no monotonic clock."""
        if not holder.process.clock or holder.process.clock != self._process.clock:
            return None
        age = self._monotonic() - holder.uptime
        return age if age >= 0 else None

    def _check_conditions(self, record: LockHolder) -> None:
        """Warn where the store ignores the conditions of a put: the same record is written on conditions that fail."""
        data = record.encode()
        for header, version in (("If-None-Match", None), ("If-Match", _OTHER_VERSION)):
            if self._store.replace(LOCK, data, version) is not None:
                logger.warning(
                    "the object store of %s ignores %s: two builds that start at the same moment would not exclude "
                    "each other",
                    self._store.uri,
                    header,
                )
                return

    def _confirm(self) -> str | None:
        """Return the lock's version if this build holds it; undo a late write of an earlier holder.

        Raises:
            IndexBusy: another build has taken the index over.
        """
        with self._writing:
            if self._lost is None:
                holder, version = self._read()
                if self._record is not None and holder is not None:
                    if holder.token == self._token:
                        return version
                    if holder.epoch < self._record.epoch and self._write(self._record, version):
                        return None
                by = ", and the lock is gone"
                if holder is not None:
                    by = f" by process {holder.process.pid} on {holder.process.host} at {holder.since}"
                self._lost = (
                    f"this build of {self._store.uri} was stopped or cut off for too long, and taken over{by}; what it "
                    "paid for is kept, run the command again"
                )
            raise IndexBusy(self._lost)

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._timing.beat_s):
            try:
                with self._guard():
                    self._renew()
            except IndexBusy as error:
                if self._lost is not None:
                    logger.warning("%s", error)
                    return
            except StoreError as error:  # a full disk fails the build itself; the next heartbeat may succeed
                logger.info("a heartbeat was missed: %s", error)

    def _renew(self) -> bool:
        """Write a heartbeat; return whether it is there. Raises IndexBusy after a take-over."""
        with self._writing:
            version = self._confirm()
            if version is None or self._record is None:
                return False
            return self._write(replace(self._record, beat=self._clock(), uptime=self._monotonic()), version)

    def _write(self, record: LockHolder, version: str | None) -> bool:
        """Write the lock if it still has this version; return whether this build's record is there now."""
        data = record.encode()
        if self._store.replace(LOCK, data, version) is None:
            current = self._store.read_version(LOCK)  # a put whose response was lost is refused when it is repeated
            if current is None or current[0] != data:
                return False
        self._record = record
        return True

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Exclude other processes between reading the lock and writing it; on local folders only."""
        if self._store.local is None:
            yield
            return
        try:
            self._store.local.mkdir(parents=True, exist_ok=True)
            guard = os.open(self._store.local / GUARD, os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise store_error(error, "lock", self._store.uri) from error
        try:
            for _ in range(round(_GUARD_TIMEOUT_S / _GUARD_POLL_S)):
                try:
                    fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._sleep(_GUARD_POLL_S)
            else:
                raise IndexBusy(
                    f"a build of {self._store.uri} was stopped while it was publishing; let it go on, or kill it"
                )
            yield
        finally:
            os.close(guard)  # closing releases the lock

    def _read(self) -> tuple[LockHolder | None, str | None]:
        """Return the holder and the version of the lock file; no holder where a crash left an unreadable file."""
        current = self._store.read_version(LOCK)
        if current is None:
            return None, None
        return LockHolder.decode(current[0]), current[1]
