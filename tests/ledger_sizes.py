"""What the files of a ledger hold."""

from __future__ import annotations

from dataclasses import dataclass

from hirag_dist.llm.reply_store.block_format import LOG, SEGMENT
from hirag_dist.llm.reply_store.reader import scan_log
from hirag_dist.llm.reply_store.segment import open_segment
from hirag_dist.storage.layout import LEDGER
from hirag_dist.storage.store import Store


@dataclass(frozen=True, slots=True)
class LedgerSize:
    """Stored replies, of which one that lies in two files counts twice, and the bytes of all files."""

    records: int
    n_bytes: int


def ledger_size(store: Store) -> LedgerSize:
    """Count what a ledger holds."""
    records = 0
    entries = store.entries(LEDGER)
    for name, entry in entries.items():
        if SEGMENT.fullmatch(name):
            records += open_segment(store, name, entry.size).n_records
        elif LOG.fullmatch(name):
            records += sum(1 for _ in scan_log(store, name))
    return LedgerSize(records, sum(entry.size for entry in entries.values()))
