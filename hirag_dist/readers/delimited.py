"""CSV and TSV: rows → documents."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator

from hirag_dist.readers.document_builder import LABEL_FIELDS, TEXT_FIELDS, DocumentBuilder, find_field, missing_text
from hirag_dist.readers.model import Document, Unreadable

DELIMITERS = (",", ";", "\t", "|")
MAX_COLUMNS = 10_000
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?')  # before the header, for Excel


def read_delimited(
    lines: Iterator[str], maker: DocumentBuilder, delimiter: str | None = None
) -> Iterator[Document | Unreadable]:
    """Yield a document, or the reason why there is none, for each row below the header.

    Quoting is as in RFC 4180; a quote that is never closed costs the row it is in, not the rest of the file.

    Args:
        lines: without their ends.
        maker: of the file's documents.
        delimiter: one character; None takes the one of `, ; tab |` under which the header has a text field,
            else the most frequent in it.
    """
    rows = read_table(
        lines,
        maker.options.max_document_bytes,
        lambda header: delimiter or _delimiter_of(header, maker),
        lambda header: _bad_header(header, maker),
        "the file is empty",
    )
    for record, fields in enumerate(rows):
        yield maker.unreadable(record, fields) if isinstance(fields, str) else maker.from_fields(fields, record)


def read_table(
    lines: Iterator[str],
    max_row_bytes: int,
    delimiter_of: Callable[[str], str],
    check_header: Callable[[list[str]], str | None] = lambda header: None,
    if_empty: str = "",
) -> Iterator[dict[str, str] | str]:
    """Yield the fields of each row below the header, empty where the row is shorter; for a broken row the reason.

    csv's limit on the size of a field, one number for the process, is raised and stays so.

    Args:
        lines: without their ends.
        max_row_bytes: limit of a row, which may go on over several lines.
        delimiter_of: header → one character.
        check_header: returns the reason why a header cannot be used; it is the only item then.
        if_empty: the only item of a file without lines; no item if empty.
    """
    csv.field_size_limit(max(csv.field_size_limit(), max_row_bytes))
    first = next((line for line in lines if line and not line.isspace()), None)
    if first is None:
        yield from [if_empty] if if_empty else []
        return
    if max(map(first.count, DELIMITERS)) >= MAX_COLUMNS:
        yield f"the header has more than {MAX_COLUMNS} columns"
        return
    named = _SEPARATOR_LINE.fullmatch(first.strip())
    if named:
        first = next((line for line in lines if line and not line.isspace()), "")
    rows = split_rows(lines, first, named[1] if named else delimiter_of(first), max_row_bytes)
    names = next(rows, [])
    header = [] if isinstance(names, str) else [name.strip() for name in names]
    reason = names if isinstance(names, str) else check_header(header)
    if reason is not None:
        yield reason
        return
    for row in rows:
        if isinstance(row, str):
            yield row
        elif any(cell.strip() for cell in row[len(header) :]):
            yield f"the row has {len(row)} fields, the header {len(header)}: quote fields that hold the delimiter"
        else:
            yield dict.fromkeys(header, "") | dict(zip(header, row, strict=False))


def _bad_header(header: list[str], maker: DocumentBuilder) -> str | None:
    """Return the reason why a header cannot be used; None if there is none."""
    options = maker.options
    if find_field(header, options.text_field, TEXT_FIELDS) is None:
        return missing_text(header, options.text_field)
    if options.label_field is not None and find_field(header, options.label_field, LABEL_FIELDS) is None:
        return f"no column {options.label_field!r} with the labels"
    return None


def _delimiter_of(header: str, maker: DocumentBuilder) -> str:
    for delimiter in DELIMITERS:
        names = [name.strip() for name in next(csv.reader([header], delimiter=delimiter))]
        if find_field(names, maker.options.text_field, TEXT_FIELDS) is not None:
            return delimiter
    return max(DELIMITERS, key=header.count)


class _Feed:
    """Lines for csv, which remembers those of the row being read, so that they can be read again."""

    def __init__(self, lines: Iterator[str], again: list[str], max_row_bytes: int) -> None:
        self._lines = lines
        self._max_row_bytes = max_row_bytes
        self._row_bytes = 0
        self._again = again[::-1]
        self.row: list[str] = []
        self.ended = False

    def __iter__(self) -> _Feed:
        return self

    def __next__(self) -> str:
        line = self._again.pop() if self._again else next(self._lines, None)
        if line is None:
            self.ended = True
            raise StopIteration
        self._row_bytes = self._row_bytes + len(line) if self.row else len(line)
        if self._row_bytes > self._max_row_bytes:
            raise csv.Error(f"a row is longer than {self._max_row_bytes} bytes")
        self.row.append(line)
        return line.replace("\n", " ") + "\n"

    def rewind(self) -> None:
        """Give the lines of the row again, but the first."""
        self._again = self.row[:0:-1]
        self.row = []
        self.ended = False


def split_rows(lines: Iterator[str], first: str, delimiter: str, max_row_bytes: int) -> Iterator[list[str] | str]:
    """Yield rows that are not blank, and for a row that is broken the reason.

    Args:
        lines: without their ends.
        first: a line before them.
        delimiter: one character.
        max_row_bytes: limit of a row; a longer one is broken.
    """
    feed = _Feed(lines, [first], max_row_bytes)
    while not feed.ended:
        try:
            for row in csv.reader(feed, delimiter=delimiter):
                if feed.ended:  # csv asked for more lines than there are
                    yield "a quote is opened and never closed"
                    feed.rewind()
                    break
                feed.row.clear()
                if len(row) > 1 or "".join(row).strip():
                    yield row
        except csv.Error as error:
            yield f"not valid CSV: {error}"
            feed.rewind()
