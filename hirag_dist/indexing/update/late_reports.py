"""Cost of the reports that questions had written, for the bill of the update that takes them over."""

from __future__ import annotations

from typing import Final

from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.snapshot.late_reports import late_reports
from hirag_dist.storage.snapshot.reader import Snapshot

ON_DEMAND: Final = "reports on demand"  # line of the bill


def late_usage(snapshot: Snapshot) -> UsageMeter:
    """Return the usage of the late reports of a snapshot, as that of replies that were found."""
    meter = UsageMeter()
    for late in late_reports(snapshot):
        meter.add(UsageMeter.from_rows([dict(row) for row in late.usage]))
    for use in meter.uses.values():
        use.ledger_hits, use.sent_tokens, use.sent_cost_usd = use.calls, 0, 0.0
    return meter
