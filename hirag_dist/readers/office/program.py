"""The program that reads office files, books and mails, in a process with limits.

Requests, replies and forks are those of `pdf_text.answer_requests`. A request has the `form` (docx, pptx, xlsx, epub or
eml), `max_chars`, `max_bytes` (of all that an archive holds), `max_tree_bytes` and `encoding` (that the user names, or
null). A reply has `text`, `places`, `title` and `properties`, of a mail `attachments`; or `refused`, the reason in
words; or `error`: text, damaged, memory, cpu or crash.
"""

from __future__ import annotations

import resource
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.archive import check_xml, open_archive, with_plain_type
from hirag_dist.readers.office.placed_text import PlacedText, TextTooLong
from hirag_dist.readers.pdf_text import answer_requests

READERS = {
    "docx": ("hirag_dist.readers.office.word", "read_word"),
    "pptx": ("hirag_dist.readers.office.slides", "read_slides"),
    "xlsx": ("hirag_dist.readers.office.sheets", "read_sheets"),
}
_MAIN_PARTS = {"docx": "word/", "pptx": "ppt/", "xlsx": "xl/"}


def read_file(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Return the reply to a request."""
    try:
        return _read(request, data)
    except FileRefused as error:
        return {"refused": str(error)}
    except TextTooLong:
        return {"error": "text"}
    except MemoryError:
        raise
    except Exception:  # of damaged files the libraries raise anything
        return {"error": "memory" if _is_full(request.get("memory_bytes", 0)) else "damaged"}


def _is_full(memory_bytes: int) -> bool:
    """Return whether most of the memory that a file may take was taken: libxml2 reports its end as a fault of it."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak:"))
    except (OSError, StopIteration):
        return False
    return limit != resource.RLIM_INFINITY and peak >= limit - memory_bytes // 4


def _read(request: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    form, max_chars, max_tree_bytes = request["form"], request["max_chars"], request["max_tree_bytes"]
    if form == "eml":
        from hirag_dist.readers.office.mail import read_mail

        found, attachments = read_mail(data, max_chars, max_tree_bytes, request["encoding"])
        return _reply(found) | {"attachments": attachments}
    archive = open_archive(data, request["max_bytes"])
    if form == "epub":
        from hirag_dist.readers.office.book import read_book

        found, lost = read_book(archive, max_chars, max_tree_bytes)
        return _reply(found) | {"lost": lost}
    if not any(name.startswith(_MAIN_PARTS[form]) for name in archive.namelist()):
        raise FileRefused(f"the file is no .{form} file")
    check_xml(archive)
    module, function = READERS[form]
    found = getattr(import_module(module), function)(with_plain_type(data, archive), max_chars)
    return _reply(found)


def _reply(found: PlacedText) -> dict[str, Any]:
    return {"text": found.text(), "places": found.places(), "title": found.title, "properties": found.properties}


def import_reader(request: Mapping[str, Any]) -> None:
    """Import the libraries of a format, if they are installed."""
    if request["form"] in READERS:
        with suppress(ImportError):
            import_module(READERS[request["form"]][0])


if __name__ == "__main__":
    answer_requests(read_file, import_reader)
