"""The cost of an index by document, folder or metadata field, for `hirag-dist status --cost`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from typing import Any

from hirag_dist.application.document_bill import (
    KINDS,
    BillShare,
    DocumentBill,
    document_bill,
    folders,
    grouped,
    metadata_values,
)
from hirag_dist.cli._output import emit, out, table
from hirag_dist.llm.usage import dollars
from hirag_dist.storage.snapshot.reader import Snapshot

_SHOWN = 50  # rows of the table
_COLUMNS = ("name", "document_id", "documents", *KINDS, "tokens", "usd")


def show_bill(snapshot: Snapshot, by: str, depth: int, *, as_csv: bool, json: bool) -> None:
    """Print what an index has cost by document or source. The rows add up to the bill.

    Extraction is billed to its document. What documents share (summaries, reports, embeddings) is divided by their
    mentions of entities.

    Args:
        by: `document`, `source` (a folder), or the name of a metadata field.
        depth: Parts of a folder's path that are told apart, for `source`.
    """
    found = document_bill(snapshot)
    rows: Sequence[BillShare] = found.shares
    if by == "source":
        rows = grouped(found, folders(snapshot, depth))
    elif by != "document":
        rows = grouped(found, metadata_values(snapshot, by))
    if as_csv:
        _write_csv(rows)
    elif json:
        total = {"tokens": found.tokens, "calls": found.calls, "usd": found.usd}
        shares = [_values(row) for row in rows]
        emit({"snapshot": snapshot.manifest.snapshot_id, "by": by, "bill": total, "shares": shares})
    else:
        _show(rows, found)


def _values(row: BillShare) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COLUMNS}


def _write_csv(rows: Sequence[BillShare]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(row, name) for name in _COLUMNS] for row in rows)


def _show(rows: Sequence[BillShare], bill: DocumentBill) -> None:
    largest = sorted(rows, key=lambda row: -row.tokens)
    shown = [(row.name, *(getattr(row, kind) for kind in KINDS), row.tokens, dollars(row.usd)) for row in largest]
    rest = largest[_SHOWN:]
    cells = shown[:_SHOWN]
    if rest:
        sums = [sum(getattr(row, kind) for row in rest) for kind in (*KINDS, "tokens")]
        cells.append((f"{len(rest):,} more", *sums, "–"))
    totals = [sum(getattr(row, kind) for row in rows) for kind in KINDS]
    cells.append(("total", *totals, bill.tokens, dollars(bill.usd)))
    columns = ["of", *KINDS, "tokens", "cost"]
    out.print(table("Bill since the index was built from nothing", columns, cells, (1, 2, 3, 4, 5, 6), (4, 2, 3)))
