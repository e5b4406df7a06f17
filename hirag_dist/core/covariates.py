"""Claims: what texts say of entities, with who says it of whom, when, and whether it holds.

GraphRAG paper §3.1.2, where they are the text's "claims", "important factual statements about entities"; GraphRAG's
tables call them covariates.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClaimItem:
    """A claim of a text.

    Attributes:
        subject, object: as the claim names them; `object` is empty where there is none.
        subject_id, object_id: the entities of layer 0 of those names; empty where there are none.
        status: true, false or suspected, as a rule; empty where it is not told.
        start_date, end_date: ISO 8601, as a rule; empty where it is not told.
        source_text: quoted from the chunk.
        chunk_id: where it is claimed; empty where that is not known.
    """

    claim_id: str
    subject: str
    object: str
    subject_id: str
    object_id: str
    type: str
    status: str
    start_date: str
    end_date: str
    description: str
    source_text: str
    chunk_id: str


def claim_text(claim: ClaimItem) -> str:
    """Return a claim on one line, as prompts and contexts show it.

    >>> claim_text(ClaimItem("c", "Ann", "Bob", "", "", "debt", "suspected", "2020-01-01", "", "Ann owes Bob.", "", ""))
    'Ann → Bob, debt (suspected, from 2020-01-01): Ann owes Bob.'
    """
    head = " → ".join(filter(None, (claim.subject, claim.object)))
    dates = [f"{word} {day}" for word, day in (("from", claim.start_date), ("to", claim.end_date)) if day]
    told = ", ".join(filter(None, (claim.status, " ".join(dates))))
    what = ", ".join(filter(None, (head, claim.type))) + (f" ({told})" if told else "")
    return f"{what}: {claim.description}"
