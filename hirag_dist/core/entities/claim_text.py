"""Text of a claim: subject, object, type, status, dates and description.

GraphRAG paper §3.1.2, where they are the text's "claims", "important factual statements about entities"; GraphRAG's
tables call them covariates.
"""

from __future__ import annotations

from hirag_dist.types import ClaimItem as ClaimItem


def claim_text(claim: ClaimItem) -> str:
    """Return a claim on one line, as prompts and contexts show it.

    >>> claim_text(ClaimItem("c", "Ann", "Bob", "", "", "debt", "suspected", "2020-01-01", "", "Ann owes Bob.", "", ""))
    'Ann → Bob, debt (suspected, from 2020-01-01): Ann owes Bob.'
    """
    head = " → ".join(filter(None, (claim.subject, claim.object)))
    dates = [f"{word} {day}" for word, day in (("from", claim.start_date), ("to", claim.end_date)) if day]
    details = ", ".join(filter(None, (claim.status, " ".join(dates))))
    what = ", ".join(filter(None, (head, claim.type))) + (f" ({details})" if details else "")
    return f"{what}: {claim.description}"
