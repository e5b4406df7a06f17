"""Every paid reply, durable before it is used, found again by what was asked. DESIGN.md says how and why."""

from hirag_dist.llm.reply_store.compaction import CompactionResult, CompactionSizes, compact
from hirag_dist.llm.reply_store.ledger import Ledger, LedgerSize, ledger_size
from hirag_dist.llm.reply_store.purge import PurgeResult, purge, scan_records

__all__ = [
    "CompactionResult",
    "CompactionSizes",
    "Ledger",
    "LedgerSize",
    "PurgeResult",
    "compact",
    "ledger_size",
    "purge",
    "scan_records",
]
