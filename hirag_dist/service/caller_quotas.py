"""Rate limits, daily quotas and concurrency limits of callers, shared by all processes of a service.

The processes map one file of fixed records, one per caller (sizes in bytes):

    key 16 | which 8 | state 0 32 | state 1 32 | requests in progress, 4 for each process

A record is changed under a lock on its bytes, which the kernel releases when a process dies. A new state is written to
the inactive one of the two and then activated by `which`, a single byte, so that a process that is killed in between
leaves a complete state. Each process counts its own requests in progress; its counts are cleared when it dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.service.auth.caller_registry import MAX_CALLERS, Caller
from hirag_dist.wire.error_status import QuotaExceeded

MAX_PROCESSES = 64
DAY_S = 86_400

logger = logging.getLogger(__name__)
_MAGIC = b"hirag-limits-1\n\0"
_HEADER_BYTES = 64
_SLOTS = 4 * MAX_CALLERS
_KEY = struct.Struct("<16s")
_STATE = struct.Struct("<ddqq")  # tokens in the bucket, time of that; day, requests of that day
_WHICH_AT = 16
_STATE_AT = 24
_COUNTS_AT = _STATE_AT + 2 * _STATE.size
_RECORD_BYTES = _COUNTS_AT + 4 * MAX_PROCESSES
_FILE_BYTES = _HEADER_BYTES + _SLOTS * _RECORD_BYTES
_LOCK_TIMEOUT_S = 0.5  # others hold a lock for microseconds, or a moment longer if they are preempted
_STUCK_LOCK_TIMEOUT_S = 0.002  # for a lock that timed out before
_RETRY_AFTER_S = 0.25  # when one of a caller's requests in progress may have ended


def prepare(path: Path, now: Callable[[], float] = time.time) -> None:
    """Create the file for a service that starts; today's use of the quotas is kept.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    today = int(now() // DAY_S)
    try:
        kept = list(_kept(path, today)) if path.exists() else []
        new = path.with_suffix(".new")
        with new.open("wb+") as file:
            os.posix_fallocate(file.fileno(), 0, _FILE_BYTES)  # a hole in the file would kill a writer on a full disk
            file.write(_MAGIC)
            with mmap.mmap(file.fileno(), _FILE_BYTES) as content:
                for key, day, used in kept:
                    at, _ = _find(content, key)
                    _KEY.pack_into(content, at, key)
                    _STATE.pack_into(content, at + _STATE_AT, 0.0, 0.0, day, used)
        new.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.with_suffix(".new").unlink(missing_ok=True)
        raise ConfigError(f"callers' quotas cannot be kept in {path}: {error.strerror}") from error


def _kept(path: Path, today: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield key, day and requests of that day for each caller."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != _FILE_BYTES:  # a file of another version
            return
        with mmap.mmap(file.fileno(), _FILE_BYTES, access=mmap.ACCESS_READ) as content:
            if content[: len(_MAGIC)] != _MAGIC:
                return
            for at in range(_HEADER_BYTES, _FILE_BYTES, _RECORD_BYTES):
                key = content[at : at + _KEY.size]
                if any(key):
                    _, _, day, used = _STATE.unpack_from(content, _state_at(content, at))
                    if day in (today, today + 1) and used > 0:
                        yield key, day, used


class SharedQuotas:
    """The quotas as one process of the service uses them.

    Args:
        path: of the file that `prepare` created.
        process: number of this process, below `MAX_PROCESSES`; counts of an earlier process of that number are cleared.
        clock: monotonic seconds, the same in all processes.
        now: seconds since 1970.
    """

    def __init__(
        self,
        path: Path,
        process: int = 0,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._file = path.open("rb+")
        self._content = mmap.mmap(self._file.fileno(), _FILE_BYTES)
        self._counts = memoryview(self._content).cast("I")
        self._process = process
        self._clock = clock
        self._now = now
        self._offsets: dict[str, int] = {}
        self._stuck: set[int] = set()  # records whose lock timed out
        self._closed = False
        for at in range(_HEADER_BYTES, _FILE_BYTES, _RECORD_BYTES):
            if any(self._content[at : at + _KEY.size]):
                self._counts[(at + _COUNTS_AT) // 4 + process] = 0

    @contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Count one request of a caller, for as long as the block lasts.

        Raises:
            QuotaExceeded: the caller has used its quota; with the time of a retry.
        """
        if not caller.limited:
            yield
            return
        at = self._offset(caller.name)
        own_count = (at + _COUNTS_AT) // 4 + self._process
        with self._locked(at):
            self._take(caller, at)
            self._counts[own_count] += 1
        try:
            yield
        finally:
            if not self._closed:  # a request may end after the service has stopped
                self._counts[own_count] -= 1  # only this process writes it, so it needs no lock

    def close(self) -> None:
        """Close the file."""
        self._closed = True
        self._counts.release()
        self._content.close()
        self._file.close()

    def _take(self, caller: Caller, at: int) -> None:
        """Count a request against a caller's limits, or raise if one of them is used up."""
        tokens, stamp, day, used = _STATE.unpack_from(self._content, _state_at(self._content, at))
        clock, now = self._clock(), self._now()
        today = int(now // DAY_S)
        if today == day - 1:
            today = day  # a clock set back over midnight grants no second quota
        elif today != day:
            used = 0
        if caller.max_concurrent is not None:
            first = (at + _COUNTS_AT) // 4
            in_progress = sum(self._counts[first : first + MAX_PROCESSES])
            if in_progress >= caller.max_concurrent:
                raise QuotaExceeded(
                    f"caller {caller.name} has {count_noun(in_progress, 'request')} in progress, as many as it may; "
                    "wait for one to end",
                    "concurrent",
                    caller.name,
                    _RETRY_AFTER_S,
                )
        if caller.per_day is not None and used >= caller.per_day:
            wait_s = (today + 1) * DAY_S - now
            raise QuotaExceeded(
                f"caller {caller.name} has used its {count_noun(caller.per_day, 'request')} of today; the day ends at "
                f"midnight UTC, in {wait_s / 3600:.1f} h",
                "quota",
                caller.name,
                wait_s,
            )
        if caller.per_second is not None and caller.burst is not None:
            aged = stamp <= 0 or clock < stamp  # never used, or written before the machine was started
            tokens = caller.burst if aged else min(caller.burst, tokens + (clock - stamp) * caller.per_second)
            if tokens < 1:
                wait_s = (1 - tokens) / caller.per_second
                raise QuotaExceeded(
                    f"caller {caller.name} sends more than {caller.per_second:g} requests per second; "
                    f"wait {wait_s:.2g} s",
                    "rate",
                    caller.name,
                    wait_s,
                )
            tokens -= 1
        which = self._content[at + _WHICH_AT] ^ 1
        _STATE.pack_into(self._content, at + _STATE_AT + which * _STATE.size, tokens, clock, today, used + 1)
        self._content[at + _WHICH_AT] = which

    def _offset(self, name: str) -> int:
        """Return the offset of a caller's record; assign one if it has none."""
        at = self._offsets.get(name)
        if at is None:
            key = hashlib.sha256(name.encode()).digest()[: _KEY.size]
            with self._locked(0):
                at, new = _find(self._content, key)
                if new:
                    _KEY.pack_into(self._content, at, key)
            self._offsets[name] = at
        return at

    @contextmanager
    def _locked(self, at: int) -> Iterator[None]:
        """Hold the lock on a record; 0 is the lock on the table.

        A process that is suspended while it holds a lock must not block the others: after a time-out they go on
        without the lock.
        """
        deadline = time.monotonic() + (_STUCK_LOCK_TIMEOUT_S if at in self._stuck else _LOCK_TIMEOUT_S)
        held = False
        while not held:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                held = True
            except OSError:
                if time.monotonic() > deadline:
                    if not self._stuck:  # of whichever record: it is one process
                        logger.error(  # noqa: TRY400 - a time-out, not the exception
                            "another process does not release its lock on callers' quotas; they are enforced loosely"
                        )
                    self._stuck.add(at)
                    break
                os.sched_yield()
        try:
            yield
        finally:
            if held:
                self._stuck.discard(at)
                with contextlib.suppress(OSError):
                    fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)


def _state_at(content: mmap.mmap, at: int) -> int:
    return at + _STATE_AT + (content[at + _WHICH_AT] & 1) * _STATE.size


def _find(content: mmap.mmap, key: bytes) -> tuple[int, bool]:
    """Return the offset of a key's record, and whether the record is new.

    Raises:
        ConfigError: all records are in use.
    """
    first = int.from_bytes(key[:8], "little")
    for step in range(_SLOTS):
        at = _HEADER_BYTES + (first + step) % _SLOTS * _RECORD_BYTES
        found = content[at : at + _KEY.size]
        if found == key:
            return at, False
        if not any(found):
            return at, True
    raise ConfigError(f"more than {_SLOTS} names of callers were used today; restart the service to forget old ones")
