"""The reply ledger (reply cache): lookup, durable writes, and refresh of the records of other processes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store.block_format import (
    Record,
    keep_first,
    key_bytes,
    new_log,
    new_run,
    pack_block,
    pack_value,
    path_of,
    segment_name,
    unpack_value,
)
from hirag_dist.llm.reply_store.reader import LedgerReader
from hirag_dist.llm.reply_store.segment import write_segment
from hirag_dist.storage.file_locks import FileLock
from hirag_dist.storage.layout import PURGED
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
_GROUP_SIZE = 64
_GROUP_S = 0.1  # on an object store, where each group is an object
_LOCAL_GROUP_S = 0.002  # and while a group is being written the next one gathers
_LOG_RECORDS = 4096  # a log is sealed at whichever comes first
_LOG_BYTES = 16 << 20
_SUPERSEDING = -1.0  # time of a record that counts before those that were stored earlier


@dataclass(slots=True)
class _Group:
    """Records that are written together, and the future of their callers."""

    records: list[Record]
    done: asyncio.Future[None]


@dataclass(slots=True)
class _OpenLog:
    """A log that this process writes, with its records."""

    name: str = field(default_factory=new_log)
    files: set[str] = field(default_factory=set)  # one, or on an object store one a group
    hold: FileLock | None = None
    holding: threading.Lock = field(default_factory=threading.Lock)
    records: dict[bytes, Record] = field(default_factory=dict)
    n_bytes: int = 0
    n_writes: int = 0  # under way
    broken: bool = False  # a write failed: what it left there must not be run into by the next one


class Ledger:
    """The replies of one index. One instance serves one event loop; any number may share a folder.

    Of two records of a key the one stored first counts, for every reader. A process that began before replies were
    removed (`purge`) stores no more: its reply may be about what was removed.

    Args:
        log_records: records after which this process's log is sealed, if not for its size before.
        clock: seconds since the epoch.
    """

    def __init__(
        self, store: Store, *, log_records: int = _LOG_RECORDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._is_local = store.local is not None
        self._log_records = log_records
        self._clock = clock
        self._latest = 0.0  # no record is stamped earlier than one before it, also where the clock is set back
        self._view = LedgerReader(store)
        self._purge: bytes | None = None  # `purged.json` when this ledger was first used; None: not used yet
        self._opening: asyncio.Task[None] | None = None
        self._log = _OpenLog()
        self._full: list[_OpenLog] = []  # being written to the end, or sealed
        self._waiting: list[_Group] = []
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the index of sealed replies; it grows by some 2.2 bytes per reply of 1.5 KB."""
        return self._view.memory_bytes

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return a record, None where there is none. Raises as `get_many`."""
        return (await self.get_many([key])).get(key)

    async def get_many(self, keys: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the records of those keys that there are. Raises StoreError where the ledger cannot be read."""
        packed = {key_bytes(key): key for key in keys}
        await self._opened()
        own = [each.records[key] for each in self._own() for key in packed if key in each.records]
        found = self._view.cached(packed)
        if found is None:
            found = await asyncio.to_thread(self._view.find, packed, self._own_names())
        for record in own:
            keep_first(found, record)
        return {packed[key]: unpack_value(record.value) for key, record in found.items()}

    async def put(self, key: str, value: Mapping[str, Any], superseded: Collection[str] = ()) -> None:
        """Store a record, as `put_many` does."""
        await self.put_many({key: value}, superseded)

    async def put_many(self, records: Mapping[str, Mapping[str, Any]], superseded: Collection[str] = ()) -> None:
        """Store records that came together; return when all are durable. What is bytes in a value is kept as it is.

        Args:
            superseded: keys whose stored record cannot be used, so that the new one counts although it is later.

        Raises:
            StoreError: they could not be written. Nothing that depends on them may be used then.
        """
        if not records:
            return
        at = self._latest = max(self._clock(), self._latest)  # of two records of a key the earlier counts
        packed = [
            Record(key_bytes(key), _SUPERSEDING if key in superseded else at, pack_value(value))
            for key, value in records.items()
        ]
        loop = asyncio.get_running_loop()
        group = _Group(packed, loop.create_future())
        self._waiting.append(group)
        if sum(len(each.records) for each in self._waiting) >= _GROUP_SIZE:
            self._flush()
        elif self._timer is None and not (self._is_local and any(log.n_writes for log in self._own())):
            self._timer = loop.call_later(_LOCAL_GROUP_S if self._is_local else _GROUP_S, self._flush)
        await group.done

    async def refresh(self) -> None:
        """See every record that any process had stored when this was called. Raises StoreError."""
        await asyncio.to_thread(self._view.refresh, self._own_names())

    async def close(self) -> None:
        """Write what waits, and seal this process's log. The ledger can be used again after it."""
        self._flush()
        await self._settled()
        if self._log.records:
            self._retire(self._log)
            await self._settled()
        await asyncio.to_thread(self._view.close)

    async def _settled(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _open(self) -> None:
        if self._purge is None:
            self._purge = await asyncio.to_thread(self._last_purge)
        await self.refresh()

    def _last_purge(self) -> bytes:
        return self._store.read_bytes(PURGED) if self._store.exists(PURGED) else b""

    async def _opened(self) -> None:
        """Read the ledger's tails once, before the first lookup; again where that failed."""
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(opening)

    def _own(self) -> list[_OpenLog]:
        return [self._log, *self._full]

    def _own_names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self._own())

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        groups, self._waiting = self._waiting, []
        if groups:
            self._start(self._write(groups))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self, groups: list[_Group]) -> None:
        to = self._log
        to.n_writes += 1
        records = [record for group in groups for record in group.records]
        failure: BaseException | None = None
        try:
            await asyncio.to_thread(self._append, to, records)
        except BaseException as error:
            failure = error
            to.broken = True
        else:
            for record in records:
                keep_first(to.records, record)
            to.n_bytes += sum(len(record.value) for record in records)
        to.n_writes -= 1
        for group in groups:
            if group.done.done():
                continue  # given up by its caller, and stored all the same
            if failure is None:
                group.done.set_result(None)
            elif isinstance(failure, Exception) and not isinstance(failure, StoreError):
                group.done.set_exception(failure)
            else:
                group.done.set_exception(StoreError(str(failure) or "the write was cancelled; run again"))
        if to.broken or len(to.records) >= self._log_records or to.n_bytes >= _LOG_BYTES:
            self._retire(to)
        if self._timer is None:
            self._flush()
        if failure is not None and not isinstance(failure, Exception):
            raise failure

    def _append(self, to: _OpenLog, records: Sequence[Record]) -> None:
        path = path_of(to.name)
        with to.holding:
            if to.hold is None:
                to.hold = self._store.try_lock(path, create=True)
            if to.hold is None:
                raise StoreError(f"cannot write {self._store.uri}/{path}: another process holds it; run again")
        last_purge = self._last_purge()  # after the log is locked: a purge that begins now finds it
        if self._purge is None:
            self._purge = last_purge
        if last_purge != self._purge:
            raise StoreError(
                f"cannot store replies in {self._store.uri}: documents were forgotten after this process began, and a "
                "reply may be about them; run the command again"
            )
        file, _ = self._store.append(path, pack_block(records))
        to.files.add(file)

    def _retire(self, old: _OpenLog) -> None:
        """Write to another log from now on, and seal this one once nothing is being written to it."""
        if self._log is old:
            self._log = _OpenLog()
            self._full.append(old)
        if old.n_writes == 0 and old in self._full:
            self._start(self._seal(old))

    async def _seal(self, old: _OpenLog) -> None:
        try:
            await asyncio.to_thread(self._sort, old)
        except StoreError as error:  # it is durable as it is, and others read it so
            logger.warning("a log of the ledger stays unsorted: %s", error)
        finally:
            if old.hold is not None:
                old.hold.release()
        try:
            await asyncio.to_thread(self._view.refresh, [each.name for each in self._own() if each is not old])
        except StoreError as error:
            logger.warning("the ledger could not be looked at, %d replies stay in memory: %s", len(old.records), error)
        else:
            self._full.remove(old)  # only now: they are found elsewhere

    def _sort(self, old: _OpenLog) -> None:
        if old.records:
            write_segment(self._store, segment_name(new_run()), (old.records[key] for key in sorted(old.records)))
        for file in sorted(old.files | {path_of(old.name)}):
            self._store.delete(file)
