"""`hirag-dist bill`: the cost of an index by document, folder or metadata field, and what was saved."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer

from hirag_dist.cli._fallback import conclude_reading
from hirag_dist.cli._options import ConfigOption, IndexOption, JsonOption, SetOption, configuration
from hirag_dist.cli._output import emit, out, short, table, use_json
from hirag_dist.composition.bill_savings import BillSavings, bill_savings
from hirag_dist.composition.document_bill import (
    KINDS,
    BillShare,
    DocumentBill,
    document_bill,
    folders,
    grouped,
    metadata_values,
)
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError
from hirag_dist.llm.usage import dollars
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store

_SHOWN = 50  # rows of the table
_COLUMNS = ("name", "document_id", "documents", *KINDS, "tokens", "usd")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("bill")(bill)


def bill(
    index: IndexOption,
    by: Annotated[
        str, typer.Option(metavar="WHAT", help="document, source (a folder), or a metadata field.")
    ] = "document",
    depth: Annotated[int, typer.Option(min=1, help="Parts of a folder's path, with --by source.")] = 100,
    config: ConfigOption = None,
    settings: SetOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print all rows as CSV.")] = False,
    json: JsonOption = False,
) -> None:
    """Show what an index has cost by document or source, and what was saved. The rows add up to the bill.

    Extraction is billed to its document. What documents share (summaries, reports, embeddings) is divided by their
    mentions of entities. Prices of --config give what cached prompts saved in dollars.
    """
    use_json(json)
    if as_csv and json:
        raise ConfigError("give --csv or --json, not both")
    snapshot = open_current(Store(index))
    found = document_bill(snapshot)
    rows: Sequence[BillShare] = found.shares
    if by == "source":
        rows = grouped(found, folders(snapshot, depth))
    elif by != "document":
        rows = grouped(found, metadata_values(snapshot, by))
    loaded = configuration(config, settings, {}).config if config is not None or settings else None
    savings = bill_savings(snapshot, loaded)
    if as_csv:
        _write_csv(rows)
    elif json:
        total = {"tokens": found.tokens, "calls": found.calls, "usd": found.usd}
        shares = [_values(row) for row in rows]
        emit({"snapshot": snapshot.manifest.snapshot_id, "by": by, "bill": total, "shares": shares} | _saved(savings))
    else:
        _show(rows, found, savings)
    conclude_reading(snapshot.fallback)


def _saved(savings: BillSavings) -> dict[str, Any]:
    return {"savings": asdict(savings)}


def _values(row: BillShare) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _COLUMNS}


def _write_csv(rows: Sequence[BillShare]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([getattr(row, name) for name in _COLUMNS] for row in rows)


def _show(rows: Sequence[BillShare], bill: DocumentBill, savings: BillSavings) -> None:
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
    for line in savings_lines(savings):
        out.print(line)


def savings_lines(savings: BillSavings) -> list[str]:
    """Return the savings, a sentence each; none about what saved nothing."""
    lines = []
    if savings.found_calls:
        tokens = "" if savings.found_tokens is None else f", {short(savings.found_tokens)} tokens"
        lines.append(f"Found replies: {count_noun(savings.found_calls, 'call')}{tokens} not paid again.")
    if savings.packed_calls:
        calls = count_noun(savings.packed_calls, "call")
        lines.append(f"Packing: {calls} fewer, {short(savings.packed_tokens or 0)} tokens of instructions.")
    if savings.cached_tokens:
        usd = "" if savings.cached_usd is None else f": {dollars(savings.cached_usd)}"
        lines.append(f"Prompt caches: {short(savings.cached_tokens)} tokens at the lower price{usd}.")
    if savings.missing_reports:
        reports = count_noun(savings.missing_reports, "report")
        lines.append(f"Reports left out: {reports}, about {short(savings.missing_tokens)} tokens.")
    return lines
