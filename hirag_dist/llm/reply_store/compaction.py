"""Compaction: logs of writers that have ended become segments, and many segments become few. Purge: records go.

Segments form runs, and runs form tiers by size; a lookup meets at most seven runs a tier, and a record is rewritten
once per tier: O(n log n) in all. A file is removed only when every record in it is durable in files written after it,
so a compaction that is stopped anywhere leaves records twice, never nowhere. DESIGN.md says why this is enough.
"""

from __future__ import annotations

import heapq
import logging
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store.block_format import LOG, SEGMENT, Record, keep_first, new_run, path_of, segment_name
from hirag_dist.llm.reply_store.reader import scan_log
from hirag_dist.llm.reply_store.segment import BLOCK_BYTES, SegmentWriter, open_segment, write_segment
from hirag_dist.storage.layout import LEDGER, PURGED
from hirag_dist.storage.store import Store, StoreEntry

logger = logging.getLogger(__name__)
_MAX_LOGS = 128  # held open at a time
_READ_AHEAD_BYTES = 64 << 20  # of all inputs of a merge together
_IDLE_S = 60.0  # a log of another machine without writes for so long counts as finished
_LEFTOVER_S = 3600.0
_KILLED_S = 60.0  # since the last write to a temporary file: its process was killed
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CompactionSizes:
    """The bounds of compaction.

    Attributes:
        segment_bytes: a segment is ended when it has passed this size, or `segment_records`.
        batch_bytes: values that are sorted in memory at a time when logs become segments.
        min_logs: fewer finished logs than this are left as they are, unless they take more than `min_log_bytes`.
        segment_records: what the writer of a segment keeps keys of in memory, 20 bytes each.
        fan_in: runs of a tier that are merged into one.
        min_tier_bytes: runs smaller than this are the lowest tier.
    """

    segment_bytes: int = 128 << 20
    batch_bytes: int = 32 << 20
    block_bytes: int = BLOCK_BYTES
    min_logs: int = 8
    min_log_bytes: int = 4 << 20
    segment_records: int = 500_000
    fan_in: int = 8
    min_tier_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class _Run:
    parts: tuple[tuple[str, int], ...]  # name and size, in the order of keys

    @property
    def n_bytes(self) -> int:
        return sum(size for _, size in self.parts)


def compact(
    store: Store,
    check: Callable[[], None] = lambda: None,
    sizes: CompactionSizes | None = None,
    clock: Callable[[], float] = time.time,
) -> None:
    """Compact a ledger; if there is little to do it lists the folder and returns.

    Logs of living writers are left alone. Readers and writers go on meanwhile.

    Args:
        check: is called before every segment that is begun and before files are removed; raises to stop.
        clock: seconds since the epoch.

    Raises:
        StoreError: a file cannot be read, written or removed. Every record is where it was, or in two places.
    """
    sizes = sizes or CompactionSizes()
    store.sweep(LEDGER, _LEFTOVER_S)
    _merge_all(store, check, sizes)  # first: what killed compactions left must not pile up
    _seal_logs(store, check, sizes, clock())
    _merge_all(store, check, sizes)


def _merge_all(store: Store, check: Callable[[], None], sizes: CompactionSizes) -> None:
    while chosen := _ripe(store, sizes):
        _merge(store, chosen, check, sizes)


def _seal_logs(store: Store, check: Callable[[], None], sizes: CompactionSizes, now: float) -> None:
    entries = store.entries(LEDGER)
    logs = [(log, entry) for name, entry in entries.items() if (log := LOG.fullmatch(name))]
    finished = [(log.string, entry.size) for log, entry in logs if may_be_finished(log, entry, now)]
    n_bytes = sum(size for _, size in finished)
    if len(finished) < sizes.min_logs and n_bytes < sizes.min_log_bytes:
        return
    logger.info("the ledger: sealing up to %d logs, %.1f MB", len(finished), n_bytes / 1e6)
    batch = _Batch(store, check, sizes)
    with batch.holds:
        for name, _ in finished:
            hold = store.try_lock(path_of(name))
            if hold is None:
                continue  # its writer lives
            batch.holds.callback(hold.release)
            for record in scan_log(store, name):
                batch.add(record)
            batch.end(name)
        batch.write()


def may_be_finished(log: re.Match[str], entry: StoreEntry, now: float) -> bool:
    """Return whether a log's writer may have ended; a running writer holds the file's lock, and that decides.

    Args:
        log: the match of `LOG` with its name.
        now: seconds since the epoch.
    """
    if log["object"] or log["host"] == socket.gethostname():
        return True
    return now - entry.modified > _IDLE_S  # locks do not reach across machines on every filesystem


class _Batch:
    """Records of several logs, or of a part of one, on their way into one segment."""

    def __init__(self, store: Store, check: Callable[[], None], sizes: CompactionSizes) -> None:
        self.holds = ExitStack()
        self._store, self._check, self._sizes = store, check, sizes
        self._records: dict[bytes, Record] = {}
        self._n_bytes = 0
        self._read: list[str] = []  # logs whose last record is in here

    def add(self, record: Record) -> None:
        keep_first(self._records, record)
        self._n_bytes += len(record.value) + 32
        if self._n_bytes >= self._sizes.batch_bytes:
            self._seal()

    def end(self, name: str) -> None:
        self._read.append(name)
        if len(self._read) >= _MAX_LOGS:
            self.write()

    def write(self) -> None:
        """Seal what there is, then remove the logs that are read to their end."""
        self._seal()
        if self._read:
            self._check()
        for name in self._read:
            self._store.delete(path_of(name))
        self._read = []
        self.holds.close()  # not earlier: a writer that came to life would add to a file that goes

    def _seal(self) -> None:
        if self._records:
            self._check()
            records = (self._records[key] for key in sorted(self._records))
            write_segment(self._store, segment_name(new_run()), records, self._sizes.block_bytes)
        self._records, self._n_bytes = {}, 0


def _ripe(store: Store, sizes: CompactionSizes) -> list[_Run]:
    """Return runs of one tier that are to be merged, the smallest such tier first; none where all is well."""
    parts: dict[str, list[tuple[str, int]]] = {}
    for name, entry in sorted(store.entries(LEDGER).items()):
        if segment := SEGMENT.fullmatch(name):
            parts.setdefault(segment["run"], []).append((name, entry.size))
    tiers: dict[int, list[_Run]] = {}
    for run in (_Run(tuple(each)) for each in parts.values()):
        tiers.setdefault(_tier(run.n_bytes, sizes), []).append(run)
    for _, runs in sorted(tiers.items()):
        if len(runs) >= sizes.fan_in:
            # Not more than twice what is due: a step that is short gets done between crashes.
            return sorted(runs, key=lambda run: run.n_bytes)[: 2 * sizes.fan_in]
    return []


def _tier(n_bytes: int, sizes: CompactionSizes) -> int:
    tier, limit = 0, sizes.min_tier_bytes
    while n_bytes >= limit:
        tier, limit = tier + 1, limit * sizes.fan_in
    return tier


def _merge(store: Store, runs: Sequence[_Run], check: Callable[[], None], sizes: CompactionSizes) -> None:
    total = sum(run.n_bytes for run in runs)
    logger.info("the ledger: merging %d runs, %.1f MB", len(runs), total / 1e6)
    started = time.perf_counter()
    chunk_bytes = max(sizes.block_bytes, min(1 << 20, _READ_AHEAD_BYTES // len(runs)))
    merged = heapq.merge(*(_scan(store, run, chunk_bytes) for run in runs))
    records = (next(equal) for _, equal in groupby(merged, attrgetter("key")))
    run = new_run()
    part = 0
    following = next(records, None)
    while following is not None:
        check()
        with store.create(path_of(segment_name(run, part))) as stream:
            writer = SegmentWriter(stream, sizes.block_bytes)
            while following is not None:
                if writer.n_bytes >= sizes.segment_bytes or writer.n_records >= sizes.segment_records:
                    break
                writer.add(following)
                following = next(records, None)
            writer.finish()
        part += 1
    check()
    for each in runs:
        for name, _ in each.parts:
            store.delete(path_of(name))
    logger.info("the ledger: merged %.1f MB into %d segments, %.1f s", total / 1e6, part, time.perf_counter() - started)


def _scan(store: Store, run: _Run, chunk_bytes: int) -> Iterator[Record]:
    for name, size in run.parts:
        yield from open_segment(store, name, size).scan(store, chunk_bytes)


@dataclass(slots=True)
class PurgeResult:
    """Outcome of a purge.

    Attributes:
        kept, dropped: records; one that is in two files counts twice.
        files: that were replaced or deleted.
        held: logs of running writers, which are left as they are.
    """

    kept: int = 0
    dropped: int = 0
    files: int = 0
    held: list[str] = field(default_factory=list)


def purge(
    store: Store,
    keep: Callable[[Record], bool],
    check: Callable[[], None] = lambda: None,
) -> PurgeResult:
    """Remove every record that is not to be kept: the only operation that takes a reply back.

    A file with a record to remove is replaced: the records to keep are written to a new segment, then the file is
    deleted. A purge that is stopped between the two leaves both files; the next purge replaces the old one again.
    Readers go on meanwhile: one that finds a file gone lists the folder again and finds the kept records elsewhere.

    A reply that was in flight is not stored afterwards: a purge first writes a new `purged.json`, and a process that
    began before it stores nothing any more (`Ledger`). A record that is removed could come back only from a process
    that has a copy of it: a compaction that was suspended before the purge, or a writer that has not sealed its log.
    The caller holds the build lock, so that a suspended compaction deletes nothing afterwards, but the segment that it
    was writing may appear. `scan_records` afterwards shows whether the ledger is clean.

    Args:
        keep: whether a record stays.
        check: called before a file is written or deleted; raises to stop.

    Raises:
        StoreError: a file cannot be read, written or deleted. Every record to keep is where it was, or in two places.
    """
    done = PurgeResult()
    check()
    store.write_json(PURGED, {"purge": uuid.uuid4().hex})  # before logs are listed: what is opened later is refused
    store.sweep(LEDGER, _KILLED_S)
    clean: set[str] = set()
    while new := {name: entry for name, entry in store.entries(LEDGER).items() if name not in clean}:
        for name, entry in new.items():  # a writer that seals its log meanwhile adds a segment
            clean.add(name)
            try:
                clean.update(_purge_file(store, name, entry, keep, check, done))
            except StoreError:
                if store.exists(path_of(name)):
                    raise
    return done


def scan_records(store: Store) -> Iterator[Record]:
    """Yield all records of a ledger, those that are in two files twice, reading every file.

    Raises:
        StoreError: a file cannot be read, or a segment is damaged.
    """
    scanned: set[str] = set()
    while new := {name: entry for name, entry in store.entries(LEDGER).items() if name not in scanned}:
        for name, entry in new.items():
            scanned.add(name)
            try:
                yield from _records(store, name, entry)
            except StoreError:
                if store.exists(path_of(name)):
                    raise


def _records(store: Store, name: str, entry: StoreEntry) -> Iterator[Record]:
    if SEGMENT.fullmatch(name):
        yield from open_segment(store, name, entry.size).scan(store, _READ_BYTES)
    elif LOG.fullmatch(name):
        yield from scan_log(store, name)


def _purge_file(
    store: Store,
    name: str,
    entry: StoreEntry,
    keep: Callable[[Record], bool],
    check: Callable[[], None],
    done: PurgeResult,
) -> list[str]:
    """Return the names of the files that were written.

    A log is replaced also where it has no record to remove: its end, cut off by a crash, may hold one that is unread.
    """
    if SEGMENT.fullmatch(name):
        segment = open_segment(store, name, entry.size)
        n_kept = sum(1 for record in segment.scan(store, _READ_BYTES) if keep(record))
        done.kept += n_kept
        if n_kept == segment.n_records:
            return []
        kept = (record for record in segment.scan(store, _READ_BYTES) if keep(record))
        return _replace(store, name, kept if n_kept else None, segment.n_records - n_kept, check, done)
    log = LOG.fullmatch(name)
    if log is None:
        return []
    hold = store.try_lock(path_of(name)) if may_be_finished(log, entry, time.time()) else None
    if hold is None:
        if store.exists(path_of(name)):
            done.held.append(name)
        return []
    try:
        records: dict[bytes, Record] = {}
        n_dropped = 0
        for record in scan_log(store, name):
            if keep(record):
                keep_first(records, record)
            else:
                n_dropped += 1
        done.kept += len(records)
        in_order = (records[key] for key in sorted(records))
        return _replace(store, name, in_order if records else None, n_dropped, check, done)
    finally:
        hold.release()


def _replace(
    store: Store,
    name: str,
    kept: Iterable[Record] | None,
    n_dropped: int,
    check: Callable[[], None],
    done: PurgeResult,
) -> list[str]:
    """Write the records to keep, then delete the file. Return the name of the segment that was written, if any."""
    written = []
    if kept is not None:
        check()
        written.append(segment_name(new_run()))
        write_segment(store, written[0], kept)
    check()
    store.delete(path_of(name))
    done.dropped += n_dropped
    done.files += 1
    logger.info("the ledger: %s is replaced, %d replies are dropped", name, n_dropped)
    return written
