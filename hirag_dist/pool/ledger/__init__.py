"""Every paid reply, durable before it is used, found again by what was asked. DESIGN.md says how and why."""

from hirag_dist.pool.ledger.compaction import Compacted, Sizes, compact
from hirag_dist.pool.ledger.ledger import Ledger
from hirag_dist.pool.ledger.survey import LedgerSize, survey

__all__ = ["Compacted", "Ledger", "LedgerSize", "Sizes", "compact", "survey"]
