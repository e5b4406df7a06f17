"""One build at a time on an index: a lock file with a heartbeat, taken over when its holder is dead.

The lock carries an epoch that rises with every holder. A holder that was taken over (stopped for a while, cut off from
the storage) finds a higher epoch there and is told at its next `check`; one that finds a lower epoch has met a late
write of such a holder and takes its place back. On a folder the looking and the writing, and what is done inside
`fenced`, exclude each other between processes by a lock of the operating system. Object stores have no such thing
here: pyarrow (26) exposes no conditional put. There the lock is read back after a delay, and between a check and the
write that follows it a build that is stopped just then can be late by one write.
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
from dataclasses import asdict, dataclass
from types import TracebackType

from hirag_dist.errors import IndexBusy, StoreError
from hirag_dist.storage.layout import LOCK
from hirag_dist.storage.store import Store

log = logging.getLogger(__name__)
_LOOK_S = 1.0  # between two looks at a lock that is waited for
_GUARD_LOOK_S = 0.05
_GUARD_S = 10.0  # a process needs the guard for milliseconds


@dataclass(frozen=True, slots=True)
class LockHolder:
    """What the lock file says.

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
        dead_after_s: a holder whose last heartbeat is so old may be taken over.
        settle_s: between writing the lock on an object store and reading it back; longer than a put takes.
    """

    beat_s: float = 10.0
    dead_after_s: float = 60.0
    settle_s: float = 1.0


class BuildLock:
    """Held while a build runs; a context manager.

    Raises:
        IndexBusy: on entering, when another live build holds the index, and still does after `wait_s`; it says who.
    """

    def __init__(
        self,
        store: Store,
        wait_s: float = 0.0,
        *,
        pace: LockTiming | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Prepare to hold an index.

        Args:
            wait_s: wait so long for another build to end.
            clock: seconds since the epoch.
            sleep: waits some seconds.
        """
        self._store = store
        self._wait_s = wait_s
        self._pace = pace or LockTiming()
        self._clock = clock
        self._sleep = sleep
        self._token = uuid.uuid4().hex
        self._own: LockHolder | None = None
        self._lost: str | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BuildLock:
        give_up_at = self._clock() + self._wait_s
        told = False
        while (busy := self._take()) is not None:
            left = give_up_at - self._clock()
            if left <= 0:
                hint = "wait for it (--wait SECONDS), or end it" if not self._wait_s else "or end it"
                raise IndexBusy(f"{busy}; {hint}")
            if not told:
                log.warning("%s; waiting up to %.0f s", busy, left)
                told = True
            self._sleep(min(_LOOK_S, left))
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
                holder = self._holder()
                if holder is not None and holder.token == self._token:
                    self._store.delete(LOCK)
        except (IndexBusy, StoreError) as failure:  # what the build did or met counts more; the next one takes over
            log.warning("the lock of %s stays behind: %s", self._store.uri, failure)

    def is_held(self) -> bool:
        """Whether a live build of another process holds the index, for who only looks."""
        holder = self._holder()
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
        """Check, and keep others from taking over until the block ends; on an object store only check.

        Raises:
            IndexBusy: another build has taken the index over.
            StoreError: the lock cannot be read.
        """
        with self._guard():
            self._confirm()
            yield

    def _take(self) -> str | None:
        """Become the holder; or return who is."""
        with self._guard():
            now = self._clock()
            holder = self._holder()
            if holder is not None and self._alive(holder, now):
                return self._said_of(holder, now)
            if holder is not None:
                log.warning("taking over %s from process %d on %s", self._store.uri, holder.pid, holder.host)
            # Milliseconds: a lock that was removed must not make epochs begin anew.
            epoch = max(holder.epoch + 1 if holder else 1, int(now * 1000))
            since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
            own = LockHolder(socket.gethostname(), os.getpid(), since, self._token, now, epoch)
            self._write(own)
        if self._store.local is None:
            self._sleep(self._pace.settle_s)
            there = self._holder()
            if there is None or there.token != self._token:
                return f"another build of {self._store.uri} started at the same moment"
        self._own = own
        return None

    def _confirm(self) -> None:
        """See that the lock is ours, and make it so where a late write of an earlier holder is in its place."""
        if self._lost is None:
            holder = self._holder()
            if self._own is not None and holder is not None:
                if holder.token == self._token:
                    return
                if holder.epoch < self._own.epoch:
                    self._write(self._own)
                    return
            by = f" by process {holder.pid} on {holder.host} at {holder.since}" if holder else ", and the lock is gone"
            self._lost = (
                f"this build of {self._store.uri} was stopped or cut off for too long, and taken over{by}; what it "
                "paid for is kept, run the command again"
            )
        raise IndexBusy(self._lost)

    def _keep_beating(self) -> None:
        while not self._stop.wait(self._pace.beat_s):
            try:
                self._beat()
            except IndexBusy as error:
                if self._lost is not None:
                    log.warning("%s", error)
                    return
            except StoreError as error:  # a full disk is the build's to tell; the next beat may land
                log.info("a heartbeat was missed: %s", error)

    def _beat(self) -> None:
        with self._guard():
            self._confirm()
            assert self._own is not None
            self._own = LockHolder(**{**asdict(self._own), "beat": self._clock()})
            self._write(self._own)

    def _write(self, holder: LockHolder) -> None:
        self._store.write_json(LOCK, asdict(holder))

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Keep other processes from looking and writing between our look and our writing; on local folders only."""
        if self._store.local is None:
            yield
            return
        try:
            self._store.local.mkdir(parents=True, exist_ok=True)
            guard = os.open(self._store.local / f".{LOCK}.guard", os.O_WRONLY | os.O_CREAT, 0o644)
        except OSError as error:
            raise StoreError(f"cannot lock {self._store.uri}: {error.strerror or error}") from error
        try:
            for _ in range(round(_GUARD_S / _GUARD_LOOK_S)):
                try:
                    fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._sleep(_GUARD_LOOK_S)
            else:
                raise IndexBusy(
                    f"a build of {self._store.uri} was stopped while it was publishing; let it go on, or kill it"
                )
            yield
        finally:
            os.close(guard)  # which lets go

    def _holder(self) -> LockHolder | None:
        """Return who has the lock; None where nobody has, or a crash left nothing that can be read."""
        try:
            data = self._store.read_bytes(LOCK)
        except StoreError:
            if self._store.exists(LOCK):
                raise
            return None
        try:
            found = json.loads(data)
            return LockHolder(
                str(found["host"]),
                int(found["pid"]),
                str(found["since"]),
                str(found["token"]),
                float(found["beat"]),
                int(found.get("epoch", 0)),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            return None

    def _alive(self, holder: LockHolder, now: float) -> bool:
        if now - holder.beat >= self._pace.dead_after_s:
            return False  # here too: its process id may be another's by now
        if holder.host == socket.gethostname():
            try:
                os.kill(holder.pid, 0)
            except ProcessLookupError:
                return False
            except PermissionError:
                return True
            return holder.pid != os.getpid()
        return True

    def _said_of(self, holder: LockHolder, now: float) -> str:
        return (
            f"{self._store.uri} is being built by process {holder.pid} on {holder.host} since {holder.since}, "
            f"last heard of {max(0.0, now - holder.beat):.0f} s ago"
        )
