"""One build at a time on an index: a lock file with a heartbeat, taken over when its holder is dead.

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
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import TracebackType

from hirag_dist.errors import IndexBusy, StoreError
from hirag_dist.storage.layout import LOCK
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_POLL_S = 1.0  # between two attempts at a lock that another build holds
_GUARD_POLL_S = 0.05
_GUARD_TIMEOUT_S = 10.0  # a process needs the guard for milliseconds


@dataclass(frozen=True, slots=True)
class LockHolder:
    """The content of the lock file.

    Attributes:
        since: when the build began, for people.
        beat: seconds since the epoch at the last heartbeat, by the holder's clock.
        epoch: rises with every holder.
    """

    host: str
    pid: int
    since: str
    token: str
    beat: float
    epoch: int


@dataclass(frozen=True, slots=True)
class LockTiming:
    """The times of a lock, in seconds.

    Attributes:
        beat_s: between two heartbeats.
        dead_after_s: age of the last heartbeat from which a holder may be taken over.
    """

    beat_s: float = 10.0
    dead_after_s: float = 60.0


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
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to lock an index.

        Args:
            wait_s: wait so long for another build to end.
            clock: seconds since the epoch.
            sleep: waits some seconds.
        """
        self._store = store
        self._wait_s = wait_s
        self._timing = timing or LockTiming()
        self._clock = clock
        self._sleep = sleep
        self._token = uuid.uuid4().hex
        self._record: LockHolder | None = None  # as written last
        self._writing = threading.RLock()  # the heartbeat and the build write the same file
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BuildLock:
        give_up_at = self._clock() + self._wait_s
        warned = False
        while (busy := self._take()) is not None:
            left = give_up_at - self._clock()
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
                holder, _ = self._read()
                if holder is not None and holder.token == self._token:
                    self._store.delete(LOCK)
        except (IndexBusy, StoreError) as failure:  # must not hide the build's own error; the next build takes over
            logger.warning("the lock of %s stays behind: %s", self._store.uri, failure)

    def is_held(self) -> bool:
        """Return whether a live build of another process holds the index, without taking the lock."""
        holder, _ = self._read()
        return holder is not None and self._alive(holder, self._clock())

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
            if holder is not None and self._alive(holder, now):
                return self._busy_message(holder, now)
            if holder is not None:
                logger.warning("taking over %s from process %d on %s", self._store.uri, holder.pid, holder.host)
            # In milliseconds, so that epochs keep rising after the lock was removed.
            epoch = max(holder.epoch + 1 if holder else 1, int(now * 1000))
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            record = LockHolder(socket.gethostname(), os.getpid(), since, self._token, now, epoch)
            if not self._write(record, version):
                return f"another build of {self._store.uri} started at the same moment"
            if self._store.replace(LOCK, _encode(record), None) is not None:
                logger.warning(
                    "the object store of %s ignores If-None-Match: two builds that start at the same moment would not "
                    "exclude each other",
                    self._store.uri,
                )
        return None

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
                    by = f" by process {holder.pid} on {holder.host} at {holder.since}"
                self._lost = (
                    f"this build of {self._store.uri} was stopped or cut off for too long, and taken over{by}; what it "
                    "paid for is kept, run the command again"
                )
            raise IndexBusy(self._lost)

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._timing.beat_s):
            try:
                self._beat()
            except IndexBusy as error:
                if self._lost is not None:
                    logger.warning("%s", error)
                    return
            except StoreError as error:  # a full disk fails the build itself; the next heartbeat may succeed
                logger.info("a heartbeat was missed: %s", error)

    def _beat(self) -> None:
        with self._guard(), self._writing:
            version = self._confirm()
            if version is not None and self._record is not None:
                self._write(replace(self._record, beat=self._clock()), version)

    def _write(self, record: LockHolder, version: str | None) -> bool:
        """Write the lock if it still has this version; return whether this build's record is there now."""
        data = _encode(record)
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
            guard = os.open(self._store.local / f".{LOCK}.guard", os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"cannot lock {self._store.uri}: {error.strerror or error}") from error
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
        data, version = current
        try:
            fields = json.loads(data)
            holder = LockHolder(
                str(fields["host"]),
                int(fields["pid"]),
                str(fields["since"]),
                str(fields["token"]),
                float(fields["beat"]),
                int(fields.get("epoch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None, version
        return holder, version

    def _alive(self, holder: LockHolder, now: float) -> bool:
        if now - holder.beat >= self._timing.dead_after_s:
            return False  # on this host too: the process id may be another process's by now
        if holder.host == socket.gethostname():
            try:
                os.kill(holder.pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                return True
            return holder.pid != os.getpid()
        return True

    def _busy_message(self, holder: LockHolder, now: float) -> str:
        return (
            f"{self._store.uri} is being built by process {holder.pid} on {holder.host} since {holder.since}, "
            f"last heard of {max(0.0, now - holder.beat):.0f} s ago"
        )


def _encode(record: LockHolder) -> bytes:
    return json.dumps(asdict(record), sort_keys=True, ensure_ascii=False, indent=1).encode()
