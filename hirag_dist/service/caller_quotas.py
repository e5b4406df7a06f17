"""Rates, quotas and calls at a time of callers, held by all processes of a service together.

They share one mapped file of fixed records, one a caller:

    key 16 | which 8 | state 0 32 | state 1 32 | calls at work, 4 for each process

A record is changed under a lock on its bytes, which the kernel lets go when a process dies. The state is written beside
the one in force and then named by `which`, a single byte, so that a process that is killed in the middle leaves a whole
state. Each process counts its own calls at work; when it dies they are taken away with it.
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
from hirag_dist.service.auth.caller_registry import MOST_CALLERS, Caller
from hirag_dist.wire.error_status import QuotaExceeded

MOST_PROCESSES = 64
DAY_S = 86_400

_LOG = logging.getLogger(__name__)
_MAGIC = b"hirag-limits-1\n\0"
_HEADER_BYTES = 64
_SLOTS = 4 * MOST_CALLERS
_KEY = struct.Struct("<16s")
_STATE = struct.Struct("<ddqq")  # tokens in the bucket, at which second of the clock; day, requests of that day
_WHICH_AT = 16
_STATE_AT = 24
_COUNTS_AT = _STATE_AT + 2 * _STATE.size
_RECORD_BYTES = _COUNTS_AT + 4 * MOST_PROCESSES
_FILE_BYTES = _HEADER_BYTES + _SLOTS * _RECORD_BYTES
_PATIENCE_S = 0.5  # for a lock: others hold one for microseconds, and a moment more where they lose the processor
_LEAST_PATIENCE_S = 0.002  # for one that was not let go before
_AT_WORK_S = 0.25  # after which one of a caller's calls may have ended


def prepare(path: Path, now: Callable[[], float] = time.time) -> None:
    """Write the file anew for a service that starts, keeping what was used of the quotas today.

    Raises:
        ConfigError: the file cannot be read or written.
    """
    today = int(now() // DAY_S)
    try:
        kept = list(_kept(path, today)) if path.exists() else []
        new = path.with_suffix(".new")
        with new.open("wb+") as file:
            os.posix_fallocate(file.fileno(), 0, _FILE_BYTES)  # on a full disk, a hole kills who writes to it
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
        raise ConfigError(f"the service's limits cannot be kept in {path}: {error.strerror}") from error


def _kept(path: Path, today: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield callers, the day, and what they used of it."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size != _FILE_BYTES:  # of another version, or something else
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
    """One process's part in the limits.

    Args:
        path: of the file, prepared.
        process: number of this process, below `MOST_PROCESSES`; what an earlier one of that number left is cleared.
        clock: seconds that run on at the same pace in all processes.
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
        self._places: dict[str, int] = {}
        self._stuck: set[int] = set()  # records that somebody does not let go of
        self._closed = False
        for at in range(_HEADER_BYTES, _FILE_BYTES, _RECORD_BYTES):
            if any(self._content[at : at + _KEY.size]):
                self._counts[(at + _COUNTS_AT) // 4 + process] = 0

    @contextmanager
    def admitted(self, caller: Caller) -> Iterator[None]:
        """Count one request of a caller, for as long as the block lasts.

        Raises:
            Limited: the caller has had its share, with when to come back.
        """
        if not caller.limited:
            yield
            return
        at = self._place(caller.name)
        mine = (at + _COUNTS_AT) // 4 + self._process
        with self._locked(at):
            self._take(caller, at)
            self._counts[mine] += 1
        try:
            yield
        finally:
            if not self._closed:  # a request that outlives the service's stop
                self._counts[mine] -= 1  # this process's alone, so no lock is needed

    def close(self) -> None:
        """Let go of the file."""
        self._closed = True
        self._counts.release()
        self._content.close()
        self._file.close()

    def _take(self, caller: Caller, at: int) -> None:
        """Take a request off a caller's limits, or none where one of them is used up."""
        tokens, stamp, day, used = _STATE.unpack_from(self._content, _state_at(self._content, at))
        clock, now = self._clock(), self._now()
        today = int(now // DAY_S)
        if today == day - 1:
            today = day  # a clock that is set back over midnight gives no second quota
        elif today != day:
            used = 0
        if caller.max_concurrent is not None:
            first = (at + _COUNTS_AT) // 4
            at_work = sum(self._counts[first : first + MOST_PROCESSES])
            if at_work >= caller.max_concurrent:
                raise QuotaExceeded(
                    f"caller {caller.name} has {count_noun(at_work, 'request')} at work, as many as it may; "
                    "wait for one to "
                    "end",
                    "concurrent",
                    caller.name,
                    _AT_WORK_S,
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
            aged = stamp <= 0 or clock < stamp  # never used, or from before the machine started
            tokens = caller.burst if aged else min(caller.burst, tokens + (clock - stamp) * caller.per_second)
            if tokens < 1:
                wait_s = (1 - tokens) / caller.per_second
                raise QuotaExceeded(
                    f"caller {caller.name} asks more than {caller.per_second:g} times a second; wait {wait_s:.2g} s",
                    "rate",
                    caller.name,
                    wait_s,
                )
            tokens -= 1
        which = self._content[at + _WHICH_AT] ^ 1
        _STATE.pack_into(self._content, at + _STATE_AT + which * _STATE.size, tokens, clock, today, used + 1)
        self._content[at + _WHICH_AT] = which

    def _place(self, name: str) -> int:
        """Return where a caller's record is, claiming one where it has none."""
        at = self._places.get(name)
        if at is None:
            key = hashlib.sha256(name.encode()).digest()[: _KEY.size]
            with self._locked(0):
                at, new = _find(self._content, key)
                if new:
                    _KEY.pack_into(self._content, at, key)
            self._places[name] = at
        return at

    @contextmanager
    def _locked(self, at: int) -> Iterator[None]:
        """Hold the lock on a record; 0 is the table's.

        A process that is stopped while it holds one must not stop the others: after a while they go on without.
        """
        give_up_at = time.monotonic() + (_LEAST_PATIENCE_S if at in self._stuck else _PATIENCE_S)
        held = False
        while not held:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
                held = True
            except OSError:
                if time.monotonic() > give_up_at:
                    if not self._stuck:  # whichever record it is, it is one process
                        _LOG.error("another process does not let go of the callers' limits; they are kept loosely")
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
    """Return where a key's record is or belongs, and whether it is new.

    Raises:
        ConfigError: all records are taken.
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
