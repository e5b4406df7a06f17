"""A text put together from blocks, with their positions in the original; tables as Markdown."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

_MAX_NAME_CHARS = 200
_PROPERTIES = ("author", "creator", "title", "subject", "keywords", "category", "language", "created", "modified")
_HEADER_EVERY = 1500  # characters of a table after which its header is repeated, so that a chunk has one


class TextTooLong(ValueError):
    """The text of a file passes the limit."""


class PlacedText:
    """A text that grows at its end.

    Attributes:
        title: of the file's properties; empty for none.
        properties: of the file by name, as text.
    """

    def __init__(self, max_chars: int) -> None:
        """Begin a text of at most `max_chars`."""
        self._max_chars = max_chars
        self._pieces: list[str] = []
        self._n_chars = 0
        self._begun: dict[str, Any] | None = None
        self._marks: list[tuple[int, dict[str, Any] | None]] = []
        self.title = ""
        self.properties: dict[str, str] = {}

    def begin(self, kind: str, *, page: int = 0, section: str = "", anchor: str = "", row: int = 0) -> None:
        """Give the text from here on a position; a kind that is empty gives none."""
        section = " ".join(section.split())[:_MAX_NAME_CHARS]
        self._begun = {"kind": kind, "page": page, "section": section, "anchor": anchor[:_MAX_NAME_CHARS], "row": row}

    def add(self, text: str, gap: str = "\n\n") -> None:
        """Add a block, if it has any characters but white space.

        Args:
            gap: between it and the block before.

        Raises:
            TextTooLong: the text passes the limit.
        """
        if not text or text.isspace():
            return
        gap = gap if self._pieces else ""
        if self._begun is not None:
            self._marks.append((self._n_chars + len(gap), self._begun if self._begun["kind"] else None))
            self._begun = None
        self._pieces.append(gap + text)
        self._n_chars += len(gap) + len(text)
        if self._n_chars > self._max_chars:
            raise TextTooLong

    def describe(self, title: str | None, properties: object) -> None:
        """Take the title and the core properties of an office file, those that it has."""
        self.title = title or ""
        for name in _PROPERTIES:
            value = getattr(properties, name, None)
            if value not in (None, "", 0):
                self.properties[name] = value.isoformat() if isinstance(value, dt.datetime) else str(value)

    def text(self) -> str:
        """Return the text."""
        return "".join(self._pieces)

    def places(self) -> list[dict[str, Any]]:
        """Return the fields of the places, `TextPlace`."""
        ends = [*(start for start, _ in self._marks[1:]), self._n_chars]
        marks = zip(self._marks, ends, strict=False)
        return [{"start": start, "end": end} | place for (start, place), end in marks if place is not None]

    def table(self, rows: Sequence[Sequence[str]], numbers: Sequence[int] = (), section: str = "") -> None:
        """Add a table, whose first row is its header. The header of a long table is repeated.

        Args:
            numbers: of the rows in their sheet, each of which then gets a place.

        Raises:
            TextTooLong: the text passes the limit.
        """
        filled = [at for row in rows for at, cell in enumerate(row, start=1) if cell.strip()]
        width = max(filled, default=0)
        if not width:
            return
        header = f"{table_row(rows[0], width)}\n|{' --- |' * width}"
        self._begin_row(numbers, 0, section)
        self.add(header)
        since = 0
        for at, row in enumerate(rows[1:], start=1):
            line = table_row(row, width)
            self._begin_row(numbers, at, section)
            if since > _HEADER_EVERY:
                self.add(header)
                since = 0
            self.add(line, "\n")
            since += len(line)

    def _begin_row(self, numbers: Sequence[int], at: int, section: str) -> None:
        if numbers:
            self.begin("sheet", section=section, row=numbers[at])


def table_row(cells: Sequence[str], width: int) -> str:
    r"""Return a row of a Markdown table.

    >>> table_row(["a|b", "c d"], 3)
    '| a\\|b | c d |  |'
    """
    shown = [" ".join(cell.split()).replace("|", "\\|") for cell in [*cells, *[""] * width][:width]]
    return f"| {' | '.join(shown)} |"
