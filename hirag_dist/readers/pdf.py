"""PDF: the text layer, with lines of a paragraph joined and hyphenated words whole.

PDFium reads it (pypdfium2, Apache-2.0 or BSD-3-Clause): next to pypdf it keeps words and single spaces in
justified text, marks the hyphens at line ends, and is sixteen times as fast. It runs in a process of its own, which has
limits (`pdf_text`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hirag_dist.readers.document_builder import DocumentBuilder
from hirag_dist.readers.limited_process import LimitedProcess
from hirag_dist.readers.model import Document, TextPlace, Unreadable

READER = LimitedProcess(Path(__file__).with_name("pdf_text.py"), "the PDF")
"""The process of this process."""

_HYPHEN = "\x02"
"""What PDFium puts in place of a hyphen and the line end after it."""

_SPLIT_WORD = re.compile(rf"(?<![^\W\d_])([^\W\d_]+){_HYPHEN}([^\W\d_]+)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_LIST_MARK = re.compile(r"(?:[•‣▪◦·*–—-]|\[?\(?(?:\d{1,3}|[a-zA-Z])[.)\]])\s")
_SENTENCE_END = re.compile(r"[.!?:。！？：][\"'”’)\]]?$")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef\u3000-\u303f\u0e00-\u0e7f]")
_LIGATURES = str.maketrans({"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl", "ﬅ": "st", "ﬆ": "st"})
_NO_TITLE = re.compile(r"\s*(?:about|blob|data|file):\S*\s*\Z", re.IGNORECASE)
_FULL_LINE = 0.75
"""A line this long, as a share of the page's usual line, goes on in the next one."""


def read_pdf(data: bytes, maker: DocumentBuilder) -> list[Document | Unreadable]:
    """Return a PDF as one document, and an `Unreadable` in addition if some of its pages could not be read.

    The title is that of the PDF's metadata, unless a browser wrote an address such as about:blank there, else the
    file's stem.

    Raises:
        FileRefused: it is damaged, encrypted, or passes a limit.
        OSError: the process that reads PDFs cannot be started.
    """
    read = READER.ask({"max_pages": maker.options.max_pages}, data, maker.options)
    pages = [page or "" for page in read["pages"]]
    bad = [index for index, page in enumerate(read["pages"]) if page is None]
    found: list[Document | Unreadable] = []
    if any(page.strip() for page in pages):
        text, lines = join_pages(pages)
        properties, places = read["properties"], _places(lines, read)
        title = properties.get("Title", "")
        title = "" if _NO_TITLE.match(title) else title
        found.append(maker.document(text, title=title, places=places, properties=properties))
    elif len(bad) < len(pages):
        found.append(maker.unreadable(None, "the PDF has no text layer; run OCR first"))
    if bad or not pages:
        numbers = ", ".join(str(index + 1) for index in bad[:20]) + (", …" if len(bad) > 20 else "")
        found.append(maker.unreadable(None, f"pages of the PDF cannot be read: {numbers or 'it has none'}"))
    return found


def _places(lines: Iterable[LineSpan], read: Mapping[str, Any]) -> Iterator[TextPlace]:
    """Yield the page of each line, and its areas there where they are known."""
    for line in lines:
        boxes, label = read["boxes"][line.page], read["labels"][line.page]
        own = boxes[line.number] if line.number < len(boxes) else []
        yield TextPlace(
            line.start, line.end, "page", page=line.page + 1, page_label=label, boxes=np.array(own, "<u2").tobytes()
        )


class LineSpan(NamedTuple):
    """A line of a page, counted from 0, with its characters in the text."""

    page: int
    number: int
    start: int
    end: int


def join_pages(pages: list[str]) -> tuple[str, list[LineSpan]]:
    """Return the text of pages as paragraphs: lines and pages joined where the sentence goes on; and the lines in it.

    A line goes on in the next one if it is about as long as the page's lines are and the next is no list
    item. At a page's end the sentence must also be unfinished and the next page begin with a small letter or,
    as in Chinese, with one that has no case.
    """
    pages = [page.replace("\r\n", "\n").replace("\r", "\n").translate(_LIGATURES) for page in pages]
    pages = _mend_hyphens(pages)
    text = ""
    found: list[LineSpan] = []
    for number, page in enumerate(pages):
        body, spans = _join_lines([line.strip() for line in page.split("\n")])
        if not body:
            continue
        goes_on = text and not _SENTENCE_END.search(text) and body[0].isalpha() and not body[0].isupper()
        text += _space(text, body) if goes_on else "\n\n" if text else ""
        found += [LineSpan(number, line, len(text) + start, len(text) + end) for line, start, end in spans]
        text += body
    return text, found


def _mend_hyphens(pages: list[str]) -> list[str]:
    """Join words hyphenated at line ends; the hyphen stays where the compound has it elsewhere."""
    words = {word.lower() for page in pages for word in _WORD.findall(page)}

    def mend(match: re.Match[str]) -> str:
        left, right = match[1], match[2]
        compound = match.string[match.end() : match.end() + 1] == "-"
        whole, hyphened = (left + right).lower() in words, f"{left}-{right}".lower() in words
        keep = hyphened or compound or right[0].isupper()
        return f"{left}-{right}" if keep and not whole else left + right

    return [_SPLIT_WORD.sub(mend, page).replace(_HYPHEN, "-") for page in pages]


def _join_lines(lines: list[str]) -> tuple[str, list[tuple[int, int, int]]]:
    """Return the text of a page, and (number, start, end) of its lines that are not empty."""
    lengths = sorted(len(line) for line in lines if line)
    if not lengths:
        return "", []
    usual = lengths[int(0.9 * (len(lengths) - 1))]
    text, last = "", ""
    spans = []
    for number, line in enumerate(lines):
        full = len(last) > 20 and len(last) >= _FULL_LINE * usual
        if full and line and not line.isdigit() and not _LIST_MARK.match(line):  # digits: a page number
            text += _space(last, line)
        else:
            text += "\n" if text else ""
        if line:
            spans.append((number, len(text), len(text) + len(line)))
        text += line
        last = line
    return text.strip("\n"), spans


def _space(left: str, right: str) -> str:
    """Return the separator of two joined lines: empty in scripts that have no spaces between words."""
    return "" if _UNSPACED.match(left[-1]) and _UNSPACED.match(right[0]) else " "
