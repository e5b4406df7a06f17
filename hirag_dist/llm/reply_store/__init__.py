"""Every paid reply, durable before it is used, found again by what was asked. DESIGN.md says how and why."""

from hirag_dist.llm.reply_store.compaction import Compacted, Sizes, compact
from hirag_dist.llm.reply_store.ledger import Ledger
from hirag_dist.llm.reply_store.stats import LedgerSize, survey

__all__ = ["Compacted", "Ledger", "LedgerSize", "Sizes", "compact", "survey"]
