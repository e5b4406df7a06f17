"""Positions in an original: the page, section or row that a stretch of a document's text comes from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """An area of a page, in shares of its width and height from the top left corner, 0 to 1."""

    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Place:
    """A stretch of a document's text (characters, half open) with its position in the original.

    Attributes:
        kind: page, slide, section, chapter, sheet, record or part; empty where only the characters are known.
        display: the position in words, such as "p. 7" or "Prices, row 12".
        page: page or slide from 1, counted from the first one of the file; 0 for none.
        page_label: that the file gives the page, such as "vii".
        section: heading, chapter, sheet or attachment that holds the text.
        anchor: identifier of the nearest preceding element that has one, or of a heading of Markdown.
        row: of the sheet, or record of the file without its header, from 1; 0 for none.
        boxes: areas of the page that hold the text, in its order.
        link: URI of the document with a fragment that opens it at the position, where its format has such fragments.
    """

    start: int
    end: int
    kind: str = ""
    display: str = ""
    page: int = 0
    page_label: str = ""
    section: str = ""
    anchor: str = ""
    row: int = 0
    boxes: tuple[Box, ...] = ()
    link: str = ""
