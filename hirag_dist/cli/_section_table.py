"""Tables of the HTML pages, on a terminal."""

from __future__ import annotations

from typing import Any

from hirag_dist.cli._output import out, table
from hirag_dist.html import Formatted, Table
from hirag_dist.types.index_info import Interval


def show_section(section: Table) -> None:
    """Print a table of a page and its note; columns of numbers that do not fit are left out."""
    rows = [[_cell(cell, section.form) for cell in row] for row in section.rows]
    right = [
        place
        for place in range(len(section.columns))
        if rows
        and not any(isinstance(row[place], str) and not isinstance(row[place], Formatted) for row in section.rows)
    ]
    spare = [place for place in reversed(range(1, len(section.columns))) if place in right]
    out.print(table(section.title, section.columns, rows, right=right, spare=spare))
    if section.note:
        out.print(section.note, style="dim", markup=False)


def _cell(cell: Any, form: str) -> Any:
    if isinstance(cell, Interval):
        if cell.value != cell.value:
            return None
        rough = ".0%" if form.endswith("%") else form
        low, high = (format(each, rough) for each in (cell.low, cell.high))
        return f"{format(cell.value, form)} ({low} to {high})"
    if isinstance(cell, float):
        return format(cell, form) if cell == cell else None
    return cell
