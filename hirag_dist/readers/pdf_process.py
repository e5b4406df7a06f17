"""Text of a PDF from the process that reads PDFs (`pdf_text`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hirag_dist.readers.limited_process import LimitedProcess
from hirag_dist.readers.model import ReadOptions


@dataclass(frozen=True, slots=True)
class PdfText:
    """Text of a PDF.

    Attributes:
        pages: None for a page that cannot be read.
        labels: of the pages, as the file has them; may be empty.
        boxes: for each line of each page its areas: left, top, right and bottom of each in 65,535ths of the page.
        properties: of the PDF by name, such as Title and CreationDate; those that it has.
        error: why there is no text: damaged, encrypted, pages, text, memory, cpu or crash; empty for none.
    """

    pages: tuple[str | None, ...] = ()
    labels: tuple[str, ...] = ()
    boxes: tuple[list[list[int]], ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


READER = LimitedProcess(Path(__file__).with_name("pdf_text.py"), "PDFs")
"""The process of this process."""


def pdf_text(data: bytes, options: ReadOptions) -> PdfText:
    """Return the text of a PDF.

    Raises:
        OSError: the process cannot be started, or ended without a reply.
    """
    request = {
        "max_pages": options.max_pages,
        "max_chars": options.max_document_bytes,
        "memory_bytes": options.memory_bytes,
        "cpu_s": options.cpu_s,
    }
    fields = READER.ask(request, data)
    pages, labels, boxes = (tuple(fields.get(name, ())) for name in ("pages", "labels", "boxes"))
    return PdfText(pages, labels, boxes, fields.get("properties", {}), fields.get("error", ""))
