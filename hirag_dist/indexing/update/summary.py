"""Summary of an update: the documents, texts and tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from hirag_dist.indexing.update.counts import TextCounts
from hirag_dist.indexing.update.documents import DocumentCounts


@dataclass(frozen=True)
class UpdateSummary:
    """Outcome of an update.

    Attributes:
        base: id of the snapshot that it started from; None of a build from nothing.
        number: of the update, since the index was built from nothing.
        documents: added, changed and removed.
        summaries, reports: written, kept and deferred.
        extraction_tokens: of the extraction of changed documents; of removed ones, what it has cost.
        spent_tokens: of all chat replies that the update rests on, whenever they were paid.
        budget_tokens: that it may have spent; None for no limit.
        returned: whether the documents are those of a former snapshot, which is the result.
        other_changes: what differs where no document was added, changed or removed: titles, places, metadata.
    """

    base: str | None
    number: int
    documents: DocumentCounts
    summaries: TextCounts
    reports: TextCounts
    extraction_tokens: int
    spent_tokens: int
    budget_tokens: int | None
    returned: bool = False
    other_changes: tuple[str, ...] = ()

    @property
    def debt_tokens(self) -> int:
        """Estimated tokens of the summaries and reports that were put off."""
        return self.summaries.deferred_tokens + self.reports.deferred_tokens

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"debt": self.debt()}

    def debt(self) -> dict[str, dict[str, int]]:
        """Return units and tokens that were put off, by kind."""
        kinds = {"summaries": self.summaries, "reports": self.reports}
        return {
            name: {"units": counts.deferred, "stand_ins": counts.stand_ins, "tokens": counts.deferred_tokens}
            for name, counts in kinds.items()
        }

    def cost(self) -> dict[str, int | None]:
        """Return tokens, for the manifest."""
        return {
            "extraction_tokens": self.extraction_tokens,
            "spent_tokens": self.spent_tokens,
            "budget_tokens": self.budget_tokens,
        }
