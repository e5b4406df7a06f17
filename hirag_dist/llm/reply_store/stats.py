"""Size of a ledger."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.llm.reply_store.file_names import log_name, run_of
from hirag_dist.llm.reply_store.segment import open_segment
from hirag_dist.llm.reply_store.write_ahead_log import scan_log
from hirag_dist.storage.layout import LEDGER
from hirag_dist.storage.store import Store


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """The contents of a ledger.

    Attributes:
        records: stored replies; one that lies in two files, which the next compaction mends, counts twice.
        n_bytes: of all files.
    """

    records: int
    n_bytes: int
    segments: int
    logs: int


def ledger_size(store: Store) -> LedgerSize:
    """Count what a ledger holds: reads the tails of segments, and logs whole.

    Raises:
        StoreError: it cannot be read, or a segment is damaged.
    """
    records = segments = logs = 0
    entries = store.entries(LEDGER)
    for name, entry in entries.items():
        kind = log_name(name)
        if run_of(name) is not None:
            segments += 1
            records += open_segment(store, name, entry.size).n_records
        elif kind is not None:
            logs += 1
            records += sum(1 for _ in scan_log(store, name, kind, entry.size))
    return LedgerSize(records, sum(entry.size for entry in entries.values()), segments, logs)
