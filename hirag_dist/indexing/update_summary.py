"""Outcome of an update: documents, texts and tokens, and the bill over all updates of an index."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from hirag_dist.errors import StoreError
from hirag_dist.indexing.changed_documents import DocumentCounts
from hirag_dist.llm.usage import added, usage_rows
from hirag_dist.schemas import USAGE
from hirag_dist.storage.layout import BUILD
from hirag_dist.storage.snapshot.reader import Snapshot, current_id


@dataclass(frozen=True)
class TextCounts:
    """Numbers of texts of one kind after an update.

    Attributes:
        written: Texts that a model wrote in this update.
        kept: Texts that stay as they were.
        deferred: due, and put off.
        stand_ins: Deferred texts that rules wrote.
        deferred_tokens: what writing the deferred ones would cost, about.
        missing: reports that the policy of reports leaves to questions.
        lists: Reports of small communities, which list their members; no model is asked for them.
    """

    written: int = 0
    kept: int = 0
    deferred: int = 0
    stand_ins: int = 0
    deferred_tokens: int = 0
    missing: int = 0
    lists: int = 0

    def __add__(self, other: TextCounts) -> TextCounts:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return TextCounts(*(mine + theirs for mine, theirs in pairs))


@dataclass(frozen=True)
class UpdateSummary:
    """Outcome of an update.

    Attributes:
        base: id of the snapshot that it started from; None of a build from nothing.
        number: Number of updates since the index was built from nothing.
        documents: added, changed and removed.
        descriptions, summaries, reports: numbers that were written, kept and deferred.
        extraction_tokens: Tokens of the extraction of changed documents; of removed ones, what it has cost.
        spent_tokens: Tokens of all chat replies that the update rests on, whenever they were paid.
        budget_tokens: that it may have spent; None for no limit.
        returned: whether the documents are those of a former snapshot, which is the result.
        other_changes: what differs where no document was added, changed or removed: titles, places, metadata.
    """

    base: str | None
    number: int
    documents: DocumentCounts
    descriptions: TextCounts
    summaries: TextCounts
    reports: TextCounts
    extraction_tokens: int
    spent_tokens: int
    budget_tokens: int | None
    returned: bool = False
    other_changes: tuple[str, ...] = ()

    @property
    def debt_tokens(self) -> int:
        """Tokens of the texts that were put off, about."""
        return sum(part["tokens"] for part in self.debt().values())

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return asdict(self) | {"debt": self.debt()}

    def debt(self) -> dict[str, dict[str, int]]:
        """Return units and tokens that were put off, by kind."""
        kinds = {"descriptions": self.descriptions, "summaries": self.summaries, "reports": self.reports}
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


def bill_rows(snapshot: Snapshot) -> list[dict[str, Any]] | None:
    """Return rows of USAGE since the index was built from nothing; None where what was paid before is not known."""
    note = snapshot.manifest.update
    if note is not None and note.bill is not None:
        return [*map(dict, note.bill)]
    own = usage_rows(snapshot.table("usage"))
    if note is None or not note.number:
        return own
    return None if note.earlier_bill is None else added([*map(dict, note.earlier_bill), *own])


def known_bill(snapshot: Snapshot) -> tuple[list[dict[str, Any]], bool]:
    """Return rows of USAGE since the index was built from nothing, or of the last update, and whether it is the former.

    Of the current snapshot, what was paid after it counts too, such as a retry that changed nothing. An index that an
    earlier version updated does not know what was paid before.
    """
    store, rows = snapshot.store, None
    with suppress(StoreError):  # a damaged record is none
        if current_id(store) == snapshot.manifest.snapshot_id and store.exists(BUILD):
            rows = store.read_json(BUILD).get("bill")
    rows = bill_rows(snapshot) if rows is None else rows
    return (usage_rows(snapshot.table("usage")), False) if rows is None else (rows, True)


def usage_table(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return the table USAGE of its rows; a cost that is not known, None, is NaN in it."""
    known = [{name: math.nan if row[name] is None else row[name] for name in USAGE.names} for row in rows]
    return pa.Table.from_pylist(known, USAGE)
