"""Office files, books and mails → documents, from the process that reads them (`office.program`)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from hirag_dist.readers.document_builder import DocumentBuilder
from hirag_dist.readers.limited_process import LimitedProcess
from hirag_dist.readers.model import Document, FileRefused, ReadOptions, SourceFile, TextPlace, Unreadable
from hirag_dist.readers.open import FORMATS, split_name

READER: Final = LimitedProcess(Path(__file__).with_name("office") / "program.py", "the file")
"""The process of this process."""

PACKAGES: Final = {"docx": ("docx", "python-docx"), "pptx": ("pptx", "python-pptx"), "xlsx": ("openpyxl", "openpyxl")}
"""Format → the module that reads it, and its package."""

INSTALL: Final = "pip install 'hirag-dist[documents]'"
_MAX_MAILS = 3  # a mail in a mail in a mail
_TREE_FACTOR = 8
_READ_ATTACHMENTS: Final = frozenset(FORMATS.values()) - {"parquet"}
ReadAttachment = Callable[[str, bytes, DocumentBuilder], Iterable[Document | Unreadable]]


def missing_package(form: str) -> str:
    """Return why files of a format cannot be read on this machine; empty if they can."""
    module, package = PACKAGES.get(form, ("", ""))
    if not module or find_spec(module) is not None:
        return ""
    return f"the file needs {package}: {INSTALL}, and run the same command again"


def missing_packages(sources: Iterable[SourceFile]) -> str:
    """Return on one line which files cannot be read for want of a package; empty for none."""
    names = [source.display for source in sources if not source.refusal and missing_package(source.format)]
    if not names:
        return ""
    more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
    return f"{names[0]}{more} cannot be read without the extra `documents`: {INSTALL}, and run the same command again"


def read_office(form: str, data: bytes, maker: DocumentBuilder) -> list[Document | Unreadable]:
    """Return a file as one document, or the reason why there is none, and the chapters of a book that are lost.

    Raises:
        FileRefused: it has no text, or passes a limit.
        OSError: the process that reads such files cannot be started.
    """
    reply = _ask(form, data, maker.options)
    lost = [maker.unreadable(record, reason) for record, reason in enumerate(reply.get("lost", ()), start=1)]
    return [_document(reply, maker), *lost]


def read_mail(
    data: bytes, maker: DocumentBuilder, read_attachment: ReadAttachment, depth: int = 1
) -> Iterator[Document | Unreadable]:
    """Yield a mail and then the documents of its attachments, each with a number as its record.

    Attachments without text (pictures, archives) are named in the mail's text and not read.

    Args:
        read_attachment: (format, content, maker) → the documents of an attachment that is no mail.
        depth: 1 for a mail that is no attachment.

    Raises:
        OSError: the process that reads mails cannot be started.
    """
    try:
        reply = _ask("eml", data, maker.options)
    except FileRefused as error:  # this mail fails; the others go on
        yield maker.unreadable(None, str(error))
        return
    yield _document(reply, maker)
    record = 1
    for attachment in reply["attachments"]:
        name = attachment["name"]
        stem, extension, compression = split_name(name)
        form = FORMATS.get(extension, "")
        if compression is not None or not extension or form not in _READ_ATTACHMENTS:
            continue
        content = base64.b64decode(attachment["data"])
        own = replace(maker, stem=stem or name)
        found: Iterable[Document | Unreadable]
        if form != "eml":
            found = read_attachment(form, content, own)
        elif depth < _MAX_MAILS:
            found = read_mail(content, own, read_attachment, depth + 1)
        else:
            found = [maker.unreadable(None, f"the mail is attached more than {_MAX_MAILS - 1} mails deep")]
        for each in found:
            yield _attached(each, name, record)
            record += 1


def _attached(found: Document | Unreadable, name: str, record: int) -> Document | Unreadable:
    """Return a document of an attachment, or the reason why there is none, as part of its mail."""
    if isinstance(found, Unreadable):
        return replace(found, record=record, is_file=False, reason=f"attachment {name}: {found.reason}")
    places = found.places or (TextPlace(0, len(found.text), "part"),)
    named = tuple(place if place.section else replace(place, section=name) for place in places)
    return replace(found, record=record, places=named)


def _document(reply: dict[str, Any], maker: DocumentBuilder) -> Document | Unreadable:
    places = (TextPlace(**place) for place in reply["places"])
    return maker.document(reply["text"], title=reply["title"], places=places, properties=reply["properties"])


def _ask(form: str, data: bytes, options: ReadOptions) -> dict[str, Any]:
    """Return the reply about a file. Raises FileRefused where it has no text."""
    if not data:
        raise FileRefused("the file is empty")
    request = {
        "form": form,
        "max_bytes": min(options.max_content_bytes(len(data)), options.max_file_bytes),
        "max_tree_bytes": _TREE_FACTOR * options.max_file_bytes,
        "encoding": options.encoding,
    }
    return READER.ask(request, data, options)
