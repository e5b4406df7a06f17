"""Removal of records, the only operation that takes a reply back: for documents that have to be forgotten.

A file with a record to remove is replaced: the records to keep are written to a new segment, then the file is deleted.
A purge that is stopped between the two leaves both files; the next purge replaces the old one again. Readers go on
meanwhile: one that finds a file gone lists the folder again and finds the kept records in the new segment.

A reply that was in flight is not stored afterwards: a purge first writes a new `purged.json`, and a process that began
before it stores nothing any more (`Ledger`). A record that is removed could come back only from a process that has a
copy of it: a compaction that was suspended before the purge, or a writer that has not sealed its log. The caller holds
the build lock, so that a suspended compaction deletes nothing afterwards, but the segment that it was writing may
appear. `scan_records` afterwards shows whether the ledger is clean.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store.block_format import Record, log_name, new_run, path_of, run_of, segment_name
from hirag_dist.llm.reply_store.compaction import may_be_finished
from hirag_dist.llm.reply_store.segment import Segment, open_segment, write_segment
from hirag_dist.llm.reply_store.write_ahead_log import scan_log
from hirag_dist.storage.layout import LEDGER, PURGED
from hirag_dist.storage.store import Store, StoreEntry

logger = logging.getLogger(__name__)
_READ_BYTES = 1 << 20
_LEFTOVER_S = 60.0  # since the last write to a temporary file: its process was killed


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
    """Remove every record that is not to be kept.

    Args:
        keep: whether a record stays.
        check: called before a file is written or deleted; raises to stop.

    Raises:
        StoreError: a file cannot be read, written or deleted. Every record to keep is where it was, or in two places.
    """
    done = PurgeResult()
    check()
    store.write_json(PURGED, {"purge": uuid.uuid4().hex})  # before logs are listed: what is opened later is refused
    store.sweep(LEDGER, _LEFTOVER_S)
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
    kind = log_name(name)
    if run_of(name) is not None:
        yield from open_segment(store, name, entry.size).scan(store, _READ_BYTES)
    elif kind is not None:
        yield from scan_log(store, name)


def _purge_file(
    store: Store,
    name: str,
    entry: StoreEntry,
    keep: Callable[[Record], bool],
    check: Callable[[], None],
    done: PurgeResult,
) -> list[str]:
    """Return the names of the files that were written."""
    kind = log_name(name)
    if run_of(name) is not None:
        return _purge_segment(store, name, open_segment(store, name, entry.size), keep, check, done)
    if kind is None:
        return []
    hold = store.try_lock(path_of(name)) if may_be_finished(kind, entry, time.time()) else None
    if hold is None:
        if store.exists(path_of(name)):
            done.held.append(name)
        return []
    try:
        return _purge_log(store, name, keep, check, done)
    finally:
        hold.release()


def _purge_segment(
    store: Store,
    name: str,
    segment: Segment,
    keep: Callable[[Record], bool],
    check: Callable[[], None],
    done: PurgeResult,
) -> list[str]:
    n_kept = sum(1 for record in segment.scan(store, _READ_BYTES) if keep(record))
    done.kept += n_kept
    if n_kept == segment.n_records:
        return []
    written = []
    if n_kept:
        check()
        written.append(segment_name(new_run(), 0))
        write_segment(store, written[0], (record for record in segment.scan(store, _READ_BYTES) if keep(record)))
    _delete(store, name, segment.n_records - n_kept, check, done)
    return written


def _purge_log(
    store: Store,
    name: str,
    keep: Callable[[Record], bool],
    check: Callable[[], None],
    done: PurgeResult,
) -> list[str]:
    """Replace a log, also one without a record to remove: its end, cut off by a crash, may hold one that is unread."""
    records: dict[bytes, Record] = {}
    n_dropped = 0
    for record in scan_log(store, name):
        if keep(record):
            known = records.get(record.key)
            records[record.key] = record if known is None else min(known, record)
        else:
            n_dropped += 1
    done.kept += len(records)
    written = []
    if records:
        check()
        written.append(segment_name(new_run(), 0))
        write_segment(store, written[0], (records[key] for key in sorted(records)))
    _delete(store, name, n_dropped, check, done)
    return written


def _delete(store: Store, name: str, n_dropped: int, check: Callable[[], None], done: PurgeResult) -> None:
    check()
    store.delete(path_of(name))
    done.dropped += n_dropped
    done.files += 1
    logger.info("the ledger: %s is replaced, %d replies are dropped", name, n_dropped)
