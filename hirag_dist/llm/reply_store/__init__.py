"""Every paid reply, durable before it is used, found again by what was asked. DESIGN.md says how and why."""

from hirag_dist.llm.reply_store.compaction import CompactionSizes, PurgeResult, compact, purge, scan_records
from hirag_dist.llm.reply_store.ledger import Ledger

__all__ = ["CompactionSizes", "Ledger", "PurgeResult", "compact", "purge", "scan_records"]
