"""Workbooks (.xlsx): the cells of each sheet as tables, a position for each row.

Values are read, as the program that saved the file computed them, and not formulas. Hidden sheets are left out. A row
without values ends a table; rows with a single value before a table are lines of their own.
"""

from __future__ import annotations

import datetime as dt
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Any

import openpyxl
from openpyxl.utils.datetime import to_excel
from openpyxl.utils.escape import unescape

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.placed_text import PlacedText

MAX_CELLS = 5_000_000
MAX_ROWS = 1_048_576  # of a sheet, as the format has it
_MAX_ROW_CELLS = 16_384
_GENERAL = ("standard", "standaard", "standardowy")  # the format General of German, Dutch and Polish programs
_TOKEN = re.compile(r'"[^"]*"|\\.|[_*].|\[[^\]]*\]|.')


def read_sheets(data: bytes, max_chars: int) -> PlacedText:
    """Return the text of a workbook. Raises FileRefused where it has more than `MAX_CELLS`."""
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
            for block in _blocks(sheet.iter_rows(), limit, workbook.epoch):
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
        """Count cells. Raises FileRefused where they are too many."""
        self._left -= n_cells
        if self._left < 0:
            raise FileRefused(f"the workbook has more than {MAX_CELLS} cells: split it")


def _blocks(rows: Iterable[Iterable[Any]], limit: _CellLimit, epoch: dt.datetime) -> Iterator[Block]:
    """Yield rows with values that follow each other."""
    block: Block = []
    for number, row in enumerate(rows, start=1):
        cells = [_shown(cell, epoch) for cell in row]
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


def _shown(cell: Any, epoch: dt.datetime) -> str:
    """Return a value as its sheet shows it, with all its digits; empty for none.

    Args:
        epoch: day 0 of the workbook.
    """
    value = cell.value
    if value is None:
        return ""
    code = cell.number_format or ""
    if isinstance(value, (dt.datetime, dt.date, dt.time, dt.timedelta)) and code.lower() in _GENERAL:
        number: float = to_excel(value, epoch)  # which openpyxl took for a date by the letter d
        return _number(number, "")
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, dt.datetime):
        return value.date().isoformat() if value.time() == dt.time() else value.isoformat(" ")
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (int, float)):
        return _number(value, code)
    text: str = unescape(str(value))
    return text.strip()


def _number(value: float, code: str) -> str:
    r"""Return a number with the texts that its format puts around it, and the zeros before it.

    >>> _number(0.125, "0.0%"), _number(12.5, '0.0"%"'), _number(1067, "00000"), _number(3, r'_-* #,##0\ "€"')
    ('12.5%', '12.5%', '01067', '3 €')
    """
    tokens = [token for token in _TOKEN.findall(code.partition(";")[0]) if token[0] not in "_*"]
    places = [at for at, token in enumerate(tokens) if token in "0#?"]
    if "%" in tokens:
        value = float(f"{value * 100:.10g}")
    digits = str(value) if isinstance(value, int) else f"{value:.15g}"
    if "e" in digits and abs(value) >= 1:
        digits = format(Decimal(repr(value)), "f")
    if not places:
        return digits
    if all(token == "0" for token in tokens[places[0] : places[-1] + 1]):
        digits = digits.zfill(len(places))
    before, after = ("".join(map(_literal, part)) for part in (tokens[: places[0]], tokens[places[-1] + 1 :]))
    return f"{before.lstrip()}{digits}{after.rstrip()}"


def _literal(token: str) -> str:
    """Return the text that a token of a number format shows."""
    if token[0] == '"':
        return token[1:-1]
    if token.startswith("[$"):
        return token[2:-1].partition("-")[0]
    return token[1:] if token[0] == "\\" else token if token in "%$€£¥ " else ""
