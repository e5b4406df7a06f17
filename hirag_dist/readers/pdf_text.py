"""Text of the pages of PDFs, in a process with limits. A program of its own: it imports nothing of this package.

PDFium may take any amount of memory and time for a small file, and a damaged file may crash it. `pdf` starts
this program once; each request is handled by a fork, so that a PDF that passes a limit costs nothing but itself.

A request on stdin is a line of JSON (`n_bytes`, `max_pages`, `max_chars`, `memory_bytes`, `cpu_s`) and the PDF. A reply
on stdout is a line with its length and JSON: `pages`, a list with null for a page that cannot be read; `labels`, of the
pages; `boxes`, for each line of each page the areas that it takes (`_line_boxes`); and `properties`, such as Title,
Author and CreationDate; or `error`: damaged, encrypted, pages, text, memory, cpu or crash.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pypdfium2 as pdfium
from pypdfium2 import raw

_PASSWORD = 4
_NO_ROOM = 2  # exit code of a fork that cannot write its reply
_HYPHEN = "\x02"
_NO_BOXES = (pdfium.PdfiumError, ArithmeticError, ValueError, LookupError, AssertionError)  # of broken geometry
_WHOLE = 65_535  # width and height of a page in the numbers of a box
_PROPERTY_CHARS = 65_536
Rectangle = tuple[float, float, float, float]  # left, top, right, bottom: shares of the page


Request = Mapping[str, Any]
Reply = Mapping[str, Any]


def main() -> None:
    """Read PDFs until stdin ends."""
    answer_requests(lambda request, data: _read(data, request["max_pages"], request["max_chars"]))


def answer_requests(
    read: Callable[[Request, bytes], Reply], prepare: Callable[[Request], None] = lambda request: None
) -> None:
    """Answer requests until stdin ends, each in a fork within its limits.

    Args:
        read: returns the reply to a request about a file.
        prepare: called before the fork, to import what it needs once.
    """
    requests, replies = sys.stdin.buffer, sys.stdout.buffer
    while line := requests.readline():
        request = json.loads(line)
        data = requests.read(request["n_bytes"])
        if len(data) < request["n_bytes"]:
            return
        prepare(request)
        reply = _in_fork(read, request, data)
        replies.write(b"%d\n" % len(reply))
        replies.write(reply)
        replies.flush()


def _in_fork(read: Callable[[Request, bytes], Reply], request: Request, data: bytes) -> bytes:
    """Return the reply that a fork writes to a temporary file; where it dies, the cause."""
    with tempfile.TemporaryFile() as file:
        child = os.fork()
        if child == 0:
            os._exit(_answer(read, request, data, file))
        _, status = os.waitpid(child, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            file.seek(0)
            return file.read()
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == _NO_ROOM:
        return json.dumps({"error": "disk"}).encode()
    by_clock = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL)
    by_memory = os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGABRT, signal.SIGTRAP, signal.SIGILL)
    return json.dumps({"error": "cpu" if by_clock else "memory" if by_memory else "crash"}).encode()


def _answer(read: Callable[[Request, bytes], Reply], request: Request, data: bytes, file: BinaryIO) -> int:
    """Write the reply to a request; the exit code of the fork."""
    try:
        _limit(resource.RLIMIT_CORE, 0)
        if mapped := _mapped_bytes():
            _limit(resource.RLIMIT_AS, mapped + request["memory_bytes"])
        _limit(resource.RLIMIT_CPU, request["cpu_s"])
        reply = read(request, data)
    except MemoryError:
        reply = {"error": "memory"}
    except BaseException:
        return 1
    try:
        file.write(json.dumps(reply).encode())
        file.flush()
    except OSError:
        return _NO_ROOM
    return 0


def _limit(kind: int, value: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _mapped_bytes() -> int:
    """Return the size of the address space; 0 where the system does not say, as on macOS, which has no such limit."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def _read(data: bytes, max_pages: int, max_chars: int) -> dict[str, Any]:
    try:
        pdf = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        return {"error": "encrypted" if error.err_code == _PASSWORD else "damaged"}
    if len(pdf) > max_pages:
        return {"error": "pages"}
    if pdf.get_formtype() != raw.FORMTYPE_NONE:
        pdf.init_forms()
    pages: list[str | None] = []
    boxes: list[list[list[int]]] = []
    labels: list[str] = []
    left = max_chars
    for index in range(len(pdf)):
        text: str | None = None
        found: list[list[int]] = []
        with suppress(pdfium.PdfiumError):
            page = pdf[index]
            text_page = page.get_textpage()
            text = text_page.get_text_bounded(errors="replace")
            with suppress(*_NO_BOXES):
                found = _line_boxes(page, text_page, text)
            text = "\n\n".join(filter(None, [text, *_form_fields(page)]))
            text_page.close()
            page.close()
        pages.append(text)
        boxes.append(found)
        labels.append("")
        with suppress(pdfium.PdfiumError, UnicodeDecodeError):
            labels[-1] = str(pdf.get_page_label(index))
        left -= len(text or "")
        if left < 0:
            return {"error": "text"}
    properties = {name: value[:_PROPERTY_CHARS] for name, value in pdf.get_metadata_dict(skip_empty=True).items()}
    return {"pages": pages, "labels": labels, "boxes": boxes, "properties": properties}


def _form_fields(page: pdfium.PdfPage) -> Iterator[str]:
    """Yield name and value of each form field of a page that is filled in."""
    form = page.formenv
    for at in range(raw.FPDFPage_GetAnnotCount(page) if form else 0):
        field = raw.FPDFPage_GetAnnot(page, at)
        kind = raw.FPDFAnnot_GetFormFieldType(form, field)
        if kind in (raw.FPDF_FORMFIELD_CHECKBOX, raw.FPDF_FORMFIELD_RADIOBUTTON):
            value = "yes" if raw.FPDFAnnot_IsChecked(form, field) else ""
        elif kind in (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
            value = _annotation_text(raw.FPDFAnnot_GetFormFieldValue, form, field)
        else:
            value = ""
        if value.strip():
            name = _annotation_text(raw.FPDFAnnot_GetFormFieldAlternateName, form, field)
            yield f"{name or _annotation_text(raw.FPDFAnnot_GetFormFieldName, form, field)}: {value}"
        raw.FPDFPage_CloseAnnot(field)


def _annotation_text(read: Callable[..., int], form: pdfium.PdfFormEnv, field: Any) -> str:
    """Return the text that a function of PDFium writes to a buffer, in UTF-16 with a zero at its end."""
    n_bytes = min(read(form, field, None, 0), _PROPERTY_CHARS)
    buffer = (ctypes.c_uint16 * (n_bytes // 2 + 1))()
    read(form, field, buffer, n_bytes)
    return bytes(buffer)[: max(n_bytes - 2, 0)].decode("utf-16-le", "replace")


def _line_boxes(page: pdfium.PdfPage, text_page: pdfium.PdfTextPage, text: str) -> list[list[int]]:
    """Return the areas of each line of a page's text, left, top, right and bottom of each in 65,535ths of the page.

    A line with a hyphen that PDFium joined takes two areas. A line that is not found takes none.
    """
    place = _page_placement(page)
    characters = text_page.get_text_range()
    boxes: list[list[int]] = []
    at = 0
    for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n"):
        found: list[Rectangle] = []
        for part in filter(None, map(str.strip, line.split(_HYPHEN))):
            first = characters.find(part, at)
            if first >= 0:
                at = first + len(part)
                found += _rectangles(text_page, first, at - 1)
        boxes.append([number for box in _merged(list(map(place, found))) for number in box])
    return boxes


def _rectangles(text_page: pdfium.PdfTextPage, first: int, last: int) -> list[Rectangle]:
    """Return left, bottom, right and top of the areas of characters, in points; none where PDFium does not know."""
    start, end = (raw.FPDFText_GetCharIndexFromTextIndex(text_page, at) for at in (first, last))
    if start < 0 or end < start:
        return []
    try:
        return [text_page.get_rect(at) for at in range(text_page.count_rects(start, end - start + 1))]
    except pdfium.PdfiumError:
        return []


def _page_placement(page: pdfium.PdfPage) -> Callable[[Rectangle], Rectangle]:
    """Return the function from left, bottom, right and top in points to shares of the page as it is shown."""
    x0, y0, x1, y1 = page.get_bbox()
    width, height = x1 - x0 or 1.0, y1 - y0 or 1.0
    turns = page.get_rotation() // 90 % 4

    def place(box: Rectangle) -> Rectangle:
        left, bottom, right, top = box
        corners = [((x - x0) / width, (y1 - y) / height) for x, y in ((left, top), (right, bottom))]
        for _ in range(turns):  # clockwise
            corners = [(1 - y, x) for x, y in corners]
        (xa, ya), (xb, yb) = corners
        return min(xa, xb), min(ya, yb), max(xa, xb), max(ya, yb)

    return place


def _merged(boxes: list[Rectangle]) -> list[list[int]]:
    """Return boxes with those side by side as one, in whole numbers within the page."""
    merged: list[Rectangle] = []
    for box in boxes:
        if merged:
            left, top, right, bottom = merged[-1]
            if min(bottom, box[3]) - max(top, box[1]) > 0:
                merged[-1] = (min(left, box[0]), min(top, box[1]), max(right, box[2]), max(bottom, box[3]))
                continue
        merged.append(box)
    return [[round(min(max(share, 0.0), 1.0) * _WHOLE) for share in box] for box in merged]


if __name__ == "__main__":
    main()
