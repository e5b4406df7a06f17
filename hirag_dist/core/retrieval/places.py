"""Positions in originals as results show them: merged, in words, and as links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import groupby
from posixpath import splitext
from typing import Final
from urllib.parse import quote

from hirag_dist.types import Box, Place

METADATA: Final = "metadata"  # in place of a stage, in dead letters about values of metadata
_RECORDS: Final = frozenset((".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".tab", ".parquet", ".pq"))
_COMPRESSED: Final = frozenset((".gz", ".bz2", ".xz", ".zst", ".zstd", ".lz4"))
_PAGES: Final = frozenset((".html", ".htm", ".xhtml"))
_MARKDOWN: Final = frozenset((".md", ".markdown"))
_TEXTS: Final = _PAGES | _MARKDOWN | {".txt", ".text", ".rst"}  # in which browsers find a quotation
_FRAGMENT_WORDS = 6  # at each end of a quotation
_WHOLE = 65_535  # width and height of a page in the numbers of a stored box
_MAX_URIS = 4096  # cached
_SAME_COLUMN = 0.5  # share of the narrower of two lines that lies below the other


@dataclass(frozen=True, slots=True)
class StoredPlace:
    """A row of PLACES (`schemas`), with its boxes as (left, top, right, bottom) in 65,535ths of the page."""

    start: int
    end: int
    kind: str
    page: int
    page_label: str
    section: str
    anchor: str
    row: int
    boxes: Sequence[Sequence[int]] = ()


@lru_cache(_MAX_URIS)
def is_record_file(uri: str) -> bool:
    """Return whether a file holds a document in each of its records."""
    stem, suffix = splitext(uri.lower())
    return (splitext(stem)[1] if suffix in _COMPRESSED else suffix) in _RECORDS


def record_place(uri: str, record: int, start: int, end: int) -> Place:
    """Return the place of a text in a record of a file.

    Args:
        record: position in the file, from 0.
    """
    row = record + 1
    return Place(start, end, "record", f"record {row}", row=row, link=link(uri))


def record_name(uri: str, record: int) -> str:
    """Return the name of a document for people: its file, with its number in a file of records.

    Args:
        record: position in the file, from 0, without a header. The name counts from 1.

    >>> record_name("rows.csv", 1), record_name("notes.md", 0), record_name("mail.eml", 1)
    ('rows.csv, record 2', 'notes.md', 'mail.eml #1')
    """
    if is_record_file(uri):
        return f"{uri}, record {record + 1}"
    return f"{uri} #{record}" if record else uri


def is_named(uri: str, record: int, pattern: str) -> bool:
    """Return whether a glob matches a document's path, or is the name of that document.

    >>> is_named("a/rows.csv", 1, "a/*"), is_named("a/rows.csv", 1, "a/rows.csv, record 2")
    (True, True)
    >>> is_named("a/rows.csv", 2, "a/rows.csv, record 2")
    False
    """
    return fnmatchcase(uri, pattern) or record_name(uri, record) == pattern


def unit_of(uri: str, record: int) -> str:
    """Return the name of a document in dead letters; that of its file where it is the first or only one."""
    return f"{uri}#{record}" if record else uri


def unit_name(unit: str) -> str:
    """Return the name for people of a record or a file that could not be read, from the unit of its dead letter.

    >>> unit_name("rows.csv#1"), unit_name("rows.csv"), unit_name("mail.eml#1")
    ('rows.csv, record 2', 'rows.csv', 'mail.eml#1')
    """
    file, _, record = unit.rpartition("#")
    return record_name(file, int(record)) if is_record_file(file) and record.isdecimal() else unit


def character_place(uri: str, start: int, end: int, text: str) -> Place:
    """Return the place of a quotation of which only the characters are known."""
    return Place(start, end, link=link(uri, text=text))


def places_between(
    stored: Iterable[StoredPlace], uri: str, start: int, end: int, text: str, *, exact: bool = False
) -> tuple[Place, ...]:
    """Return the places of a stretch of text: one for each page, section or run of rows.

    Args:
        stored: rows that overlap the stretch, in the order of the text.
        exact: a box for each line, of a line that is partly in the stretch about that part; else lines below each
            other are one box.
    """
    found = []
    for _, group in groupby(stored, lambda row: (row.kind, row.page, row.page_label, row.section)):
        rows = list(group)
        first, last = replace(rows[0], row=next((row.row for row in rows if row.row), 0)), rows[-1]
        low, high = max(first.start, start), min(last.end, end)
        boxes = [box for row in rows for box in (_clipped(row, low, high) if exact else row.boxes)]
        found.append(
            Place(
                low,
                high,
                first.kind,
                display(first, last.row),
                first.page,
                first.page_label,
                first.section,
                first.anchor,
                first.row,
                tuple(Box(*(number / _WHOLE for number in each)) for each in (boxes if exact else _joined(boxes))),
                link(uri, page=first.page, anchor=first.anchor, text=text[low - start : high - start] if exact else ""),
            )
        )
    return tuple(found)


def display(place: StoredPlace, last_row: int = 0) -> str:
    """Return a position in words.

    >>> display(StoredPlace(0, 9, "page", 7, "vii", "", "", 0))
    'p. vii (PDF p. 7)'
    >>> display(StoredPlace(0, 9, "sheet", 0, "", "Prices", "", 12), 14)
    'Prices, rows 12–14'
    """
    numbered = ""
    if place.kind == "slide":
        numbered = f"slide {place.page}"
    elif place.page:
        own = place.page_label if place.page_label not in ("", str(place.page)) else ""
        numbered = f"p. {own} (PDF p. {place.page})" if own else f"p. {place.page}"
    elif place.row:
        numbered = f"rows {place.row}–{last_row}" if last_row > place.row else f"row {place.row}"
    parts = [numbered, place.section] if place.kind == "slide" else [place.section, numbered]
    return ", ".join(filter(None, parts)) or place.anchor


def address(uri: str, source_url: str) -> str:
    """Return the absolute address of a document, if its files are served somewhere; else its URI.

    >>> address("a b.pdf", "https://example.org/files/"), address("s3://b/a.pdf", "https://example.org")
    ('https://example.org/files/a%20b.pdf', 's3://b/a.pdf')
    """
    if not source_url or not uri or "://" in uri:
        return uri
    return f"{source_url.rstrip('/')}/{quote(uri, safe='/', errors='replace')}"


def link(uri: str, *, page: int = 0, anchor: str = "", text: str = "") -> str:
    """Return a URI with the fragment that opens it at a position; empty for no URI.

    A file name is a relative reference: its special characters are escaped.

    >>> link("a b.pdf", page=7), link("https://example.org/x.html", anchor="top")
    ('a%20b.pdf#page=7', 'https://example.org/x.html#top')
    >>> link("x.txt", text="It was, he said, self-evident.")
    'x.txt#:~:text=It%20was%2C%20he%20said%2C%20self%2Devident.'
    """
    base = uri if "://" in uri else quote(uri, safe="/", errors="replace")
    if not (uri and (page or anchor or text)):
        return base
    suffix = splitext(uri.lower())[1]
    if suffix == ".pdf":
        return f"{base}#page={page}" if page else base
    fragment = quote(anchor, safe="/?:@!$'()*+,;=-._~", errors="replace") if suffix in _PAGES | _MARKDOWN else ""
    directive = _text_directive(text) if suffix in _TEXTS else ""
    return f"{base}#{fragment}{directive}" if fragment or directive else base


def _text_directive(text: str) -> str:
    """Return the part of a fragment by which a browser finds a quotation; its ends where it is long."""
    blocks = [words for words in (block.split() for block in text.replace(" | ", "\n").split("\n")) if words]
    if not blocks:
        return ""
    if len(blocks) == 1 and len(blocks[0]) <= 2 * _FRAGMENT_WORDS:
        ends = [blocks[0]]
    else:
        ends = [blocks[0][:_FRAGMENT_WORDS], blocks[-1][-_FRAGMENT_WORDS:]]
    quoted = (quote(" ".join(words), safe="", errors="replace").replace("-", "%2D") for words in ends)
    return f":~:text={','.join(quoted)}"


def _clipped(row: StoredPlace, low: int, high: int) -> Sequence[Sequence[int]]:
    """Return the boxes of a line, of its only box the part that its characters take, if all are equally wide."""
    if len(row.boxes) != 1 or (low <= row.start and row.end <= high):
        return row.boxes
    left, top, right, bottom = row.boxes[0]
    width = (right - left) / (row.end - row.start)
    from_left, to_right = max(low - row.start, 0), max(row.end - high, 0)
    return [(round(left + from_left * width), top, round(right - to_right * width), bottom)]


def _joined(boxes: Iterable[Sequence[int]]) -> list[Sequence[int]]:
    """Return boxes with lines that follow each other in a column as one box."""
    joined: list[Sequence[int]] = []
    for left, top, right, bottom in boxes:
        if joined:
            x0, y0, x1, y1 = joined[-1]
            shared = min(x1, right) - max(x0, left)
            height = bottom - top
            if shared >= _SAME_COLUMN * min(x1 - x0, right - left) and -height <= top - y1 <= height and top >= y0:
                joined[-1] = (min(x0, left), min(y0, top), max(x1, right), max(y1, bottom))
                continue
        joined.append((left, top, right, bottom))
    return joined
