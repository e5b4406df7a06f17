"""Workbooks (.xlsx): the cells of each sheet as tables, a position for each row.

Values are read, as the program that saved the file computed them, and not formulas. Hidden sheets are left out. A row
without values ends a table; rows with a single value before a table are lines of their own.
"""

from __future__ import annotations

import datetime as dt
import io
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import openpyxl

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.placed_text import PlacedText

MAX_CELLS = 5_000_000
MAX_ROWS = 1_048_576  # of a sheet, as the format has it
_MAX_ROW_CELLS = 16_384


def read_sheets(data: bytes, max_chars: int) -> PlacedText:
    """Return the text of a workbook.

    Raises:
        FileRefused: it has more than `MAX_CELLS`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of extensions that are not read
        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        found = PlacedText(max_chars)
        limit = _CellLimit()
        for sheet in workbook.worksheets:
            if sheet.sheet_state != "visible":
                continue
            sheet.reset_dimensions()  # which a file may overstate
            found.begin("sheet", section=sheet.title)
            is_first = True
            for block in _blocks(sheet.iter_rows(), limit):
                if is_first:
                    found.add(f"## {' '.join(sheet.title.split())}")
                    is_first = False
                _add_block(block, sheet.title, found)
        found.describe(workbook.properties.title, workbook.properties)
        return found


Block = list[tuple[int, list[str]]]  # (row, cells)


class _CellLimit:
    """The cells of a workbook that may still be read, empty ones before a value counted."""

    def __init__(self) -> None:
        self._left = MAX_CELLS

    def take(self, n_cells: int) -> None:
        """Count cells.

        Raises:
            FileRefused: they are too many.
        """
        self._left -= n_cells
        if self._left < 0:
            raise FileRefused(f"the workbook has more than {MAX_CELLS} cells: split it")


def _blocks(rows: Iterable[Iterable[Any]], limit: _CellLimit) -> Iterator[Block]:
    """Yield rows with values that follow each other."""
    block: Block = []
    for number, row in enumerate(rows, start=1):
        cells = [_shown(cell) for cell in row]
        limit.take(len(cells))
        if any(cells):
            block.append((number, cells[:_MAX_ROW_CELLS]))
        elif block:
            yield block
            block = []
        if number >= MAX_ROWS:
            break
    if block:
        yield block


def _add_block(block: Block, sheet: str, found: PlacedText) -> None:
    first = next((at for at, (_, cells) in enumerate(block) if sum(map(bool, cells)) > 1), len(block))
    for number, cells in block[:first]:
        found.begin("sheet", section=sheet, row=number)
        found.add(" ".join(next(filter(None, cells)).split()))
    rows = [cells for _, cells in block[first:]]
    if rows:
        empty = min(next(at for at, cell in enumerate(cells) if cell) for cells in rows)  # columns left of the table
        found.table([cells[empty:] for cells in rows], [number for number, _ in block[first:]], sheet)


def _shown(cell: Any) -> str:
    """Return a value as text that does not depend on the machine; empty for none."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (int, float)):
        if "%" in (cell.number_format or ""):
            return f"{value * 100:.10g}%"
        return f"{value:.15g}"
    return str(value).strip()
