"""A `SourceFile` → its documents, one at a time. Markdown is read here: its front matter gives title and labels."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import cast

import yaml

from hirag_dist.readers.document_builder import USUAL_FIELDS, DocumentBuilder, doubled_labels, label_fields
from hirag_dist.readers.encoding import NotText, clean_text, decode_text, text_lines
from hirag_dist.readers.limited_process import raise_if_full
from hirag_dist.readers.model import (
    Document,
    FileRefused,
    InputTooLarge,
    ReadOptions,
    SourceFile,
    TextPlace,
    Unreadable,
)
from hirag_dist.readers.office_files import missing_package, read_mail, read_office
from hirag_dist.readers.open import expands_too_far, explain, open_source, public_uri, read_all, split_name
from hirag_dist.readers.parquet import read_parquet
from hirag_dist.readers.pdf import read_pdf
from hirag_dist.readers.text_records import read_delimited, read_json, read_json_lines

_OPENING = r"(?:[ \t]*\n)*---[ \t]*(?:[ \t]#[^\n]*)?\n"
_FRONT_MATTER = re.compile(rf"{_OPENING}(.*?\n)?(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_OPENED = re.compile(rf"{_OPENING}(.*?)(?:^ {{0,3}}#{{1,6}}[ \t][^\n]*\n[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
"""What is opened and not closed, up to a heading: of a comment of YAML an empty line below tells it."""
_LABEL = rf"[\"']?(?:{'|'.join(USUAL_FIELDS['label'])})[\"']?"
_LABELS = re.compile(
    rf"(?:^[ \t]*(?:-[ \t]+)*|\{{\s*|\A(?:\s*#.*\n)*\s*\{{(?s:.*),\s*){_LABEL}[ \t]*:"
    rf"|^[ \t]*(?:-[ \t]+)*\?[ \t]+{_LABEL}\s*:",
    re.MULTILINE | re.IGNORECASE,
)
_FENCE = re.compile(r" {0,3}(```|~~~)")
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_HEADING_CHARS = 1000  # the pattern is quadratic in the spaces of a line
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()]*\)")
_MARKUP = re.compile(r"`|\*{1,3}|<[^<>]*>")
_NOT_IN_SLUG = re.compile(r"[^\w\- ]")
_PICTURE = re.compile(r"data:[\w.+-]+/[\w.+-]+;base64,[A-Za-z0-9+/=%]{64,}")
_MAX_NAME_CHARS = 200
_MAX_FRONT_MATTER = 1 << 16  # characters; YAML takes some hundred times as much memory


def read_markdown(text: str, maker: DocumentBuilder) -> Document | Unreadable:
    """Return a Markdown text as a document.

    Pictures within the text, in base64, are left out. Front matter is YAML between `---` lines at the start, below
    empty lines at most; what is not closed or no YAML mapping is taken as text, unless it names labels: then there is
    no telling who may read the text, and it is `Unreadable`. The title is its title field, else the first heading of
    the first level outside code, else the file's stem. Places are the sections below headings.
    """
    text, fields, names = _split_front_matter(_PICTURE.sub("", clean_text(text)))
    options = maker.options
    if reason := doubled_labels(names, options.label_field):
        return maker.unreadable(None, f"in its front matter {reason}")
    matter = None if fields else _FRONT_MATTER.match(text) or _OPENED.match(text, 0, _MAX_FRONT_MATTER)
    if matter is not None and _LABELS.search(matter[1] or ""):
        return maker.unreadable(None, "its front matter names labels and is not valid YAML between two lines of ---")
    title_field, id_field = (maker.field(kind, fields) for kind in ("title", "id"))
    headings = list(_headings(text))
    first = next((name for _, name, level in headings if level == 1), None)
    return maker.document(
        text,
        title=None if title_field is None else fields[title_field],
        labels=[fields[name] for name in label_fields(fields, options.label_field)],
        default_title=first,
        source_id=None if id_field is None else fields[id_field],
        places=_places(headings, len(text)),
        properties=fields,
    )


def _split_front_matter(text: str) -> tuple[str, dict[str, object], list[str]]:
    """Return the text below front matter, its fields, and their names as they are written, some maybe twice."""
    match = _FRONT_MATTER.match(text)
    if match is None or len(match[0]) > _MAX_FRONT_MATTER:
        return text, {}, []
    try:
        loader = yaml.SafeLoader(match[1] or "")
        node = loader.get_single_node()
        names = [str(key.value) for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
        fields = loader.construct_document(node)
    except Exception:  # yaml raises KeyError and IndexError too, of odd values
        return text, {}, []
    if not isinstance(fields, dict):
        return text, {}, []
    return text[match.end() :].lstrip("\n"), {str(name): value for name, value in fields.items()}, names


def _headings(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield (start, text, level) of the headings outside code, in the form with number signs."""
    fence = ""
    at = 0
    for line in io.StringIO(text):
        mark = _FENCE.match(line)
        if mark:
            fence = "" if fence == mark[1] else fence or mark[1]
        heading = None if fence else _HEADING.match(line[:_HEADING_CHARS])
        if heading:
            yield at, heading[2], len(heading[1])
        at += len(line)


def _places(headings: Sequence[tuple[int, str, int]], n_chars: int) -> Iterator[TextPlace]:
    """Yield the sections below headings, with the anchors that GitHub and most converters give them."""
    ends = [*(start for start, _, _ in headings[1:]), n_chars]
    seen: Counter[str] = Counter()
    for (start, heading, _), end in zip(headings, ends, strict=False):
        name = " ".join(_MARKUP.sub("", _LINK.sub(r"\1", heading)).split())
        slug = _NOT_IN_SLUG.sub("", name.lower()).replace(" ", "-")
        anchor = f"{slug}-{seen[slug]}" if seen[slug] else slug
        seen[slug] += 1
        yield TextPlace(start, end, "section", section=name[:_MAX_NAME_CHARS], anchor=anchor[:_MAX_NAME_CHARS])


Found = Iterator[Document | Unreadable]

_OWN_PAGE = b'<meta name="generator" content="hirag-dist">'  # of `inspect`, `eval` and other reports
_PDF_MAGIC = b"%PDF-"
_MAGIC_BYTES = 1024


def read_source(source: SourceFile, options: ReadOptions) -> Found:
    """Yield the documents of a file in their order, and an `Unreadable` for each one that could not be read.

    Nothing is read before the first one is asked for. Memory is bounded by the limits of the options: formats of
    many records are read record by record. What fails is an `Unreadable`, not an exception, and a bad record
    does not lose the others; where the rest of a file is lost (damaged compression, a connection that
    breaks), the last one says so. A file yields at least one of either, but for a page that this package wrote,
    which is left out. A file that begins as a PDF is read as one, whatever its name.
    """
    stem, extension, _ = split_name(source.uri)
    maker = DocumentBuilder(public_uri(source.uri), stem, options, source.name)
    if source.refusal:
        yield maker.unreadable(None, source.refusal)
        return
    if source.format == "unsupported":
        hint = f": {_INSTEAD[extension]}" if extension in _INSTEAD else ""
        yield maker.unreadable(None, f"unsupported file type {extension}{hint}")
        return
    record = 0
    try:
        for found in _bounded(_read(source, maker), options, source.size_bytes):
            yield found
            record = found.record + 1
    except _OwnPage:
        return
    except (NotText, FileRefused) as error:
        yield maker.unreadable(record or None, str(error))
    except Exception as error:  # whatever a reader or its library raises is a fault of this file alone
        raise_if_full(error)
        yield maker.unreadable(record or None, explain(error))
    else:
        if record == 0:
            yield maker.unreadable(None, "the file holds no records")


class _OwnPage(Exception):
    """A page of HTML that this package wrote."""


def _bounded(found: Found, options: ReadOptions, stored_bytes: int) -> Found:
    """Yield the documents of a file until they are too many, or too much text for the size of the file.

    Raises:
        InputTooLarge: after what is below the limits.
    """
    left = options.max_content_bytes(stored_bytes)
    for each in found:
        if each.record >= options.max_records:
            limit = f"more than {options.max_records} records"
            raise InputTooLarge(f"the file holds {limit}, and the rest is not read: split it")
        if isinstance(each, Document):
            left -= len(each.text)
            if left < 0:
                raise expands_too_far(options.max_expansion)
        yield each


def _read(source: SourceFile, maker: DocumentBuilder) -> Found:
    if source.format == "parquet":
        yield from read_parquet(source, maker)
        return
    options = maker.options
    with open_source(source, options) as stream:
        head = stream.peek(_MAGIC_BYTES)[:_MAGIC_BYTES]
        is_pdf = head.startswith(_PDF_MAGIC) or (source.format == "pdf" and _PDF_MAGIC in head)
        if source.format == "pdf" and not is_pdf:
            yield maker.unreadable(None, "the file is no PDF" if head else "the file is empty")
            return
        if source.format == "html" and _OWN_PAGE in head:
            raise _OwnPage
        yield from _read_form("pdf" if is_pdf else source.format, stream, maker)


def _read_form(form: str, content: io.BufferedReader | bytes, maker: DocumentBuilder) -> Found:
    options = maker.options
    if reason := missing_package(form):
        yield maker.unreadable(None, reason)
    elif form in _BY_LINE:
        file = io.BufferedReader(io.BytesIO(content)) if isinstance(content, bytes) else content
        stream = cast(io.BufferedReader, file)
        yield from _BY_LINE[form](text_lines(stream, options.max_document_bytes, options.encoding), maker)
    else:
        yield from _WHOLE[form](
            content if isinstance(content, bytes) else read_all(content, options.max_file_bytes), maker
        )


def _text(data: bytes, maker: DocumentBuilder) -> str:
    return decode_text(data, named=maker.options.encoding)


def _read_page(data: bytes, maker: DocumentBuilder) -> list[Document | Unreadable]:
    from hirag_dist.readers.html import read_html  # not at the top: commands that read no input do without lxml

    return [read_html(data, maker)]


_BY_LINE: dict[str, Callable[[Iterator[str], DocumentBuilder], Found]] = {  # read in bounded memory
    "jsonl": read_json_lines,
    "csv": read_delimited,
    "tsv": partial(read_delimited, delimiter="\t"),
}
_WHOLE: dict[str, Callable[[bytes, DocumentBuilder], Iterable[Document | Unreadable]]] = {
    "txt": lambda data, maker: [maker.document(_text(data, maker))],
    "md": lambda data, maker: [read_markdown(_text(data, maker), maker)],
    "html": _read_page,
    "pdf": read_pdf,
    "json": lambda data, maker: read_json(_text(data, maker), maker),
    **{form: partial(read_office, form) for form in ("docx", "pptx", "xlsx", "epub")},
    "eml": lambda data, maker: read_mail(data, maker, _read_attachment),
}
_INSTEAD = {  # file name extension → a form that is read
    **dict.fromkeys((".doc", ".odt", ".rtf", ".pages"), "save it as .docx"),
    **dict.fromkeys((".ppt", ".odp", ".key"), "save it as .pptx"),
    **dict.fromkeys((".xls", ".xlsb", ".ods", ".numbers"), "save it as .xlsx"),
    **dict.fromkeys((".msg", ".mbox"), "save its mails as .eml"),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".webp"), "run OCR and give the text"),
    **dict.fromkeys((".zip", ".tar", ".7z", ".rar"), "unpack it"),
}


def _read_attachment(form: str, data: bytes, maker: DocumentBuilder) -> Found:
    """Yield the documents of an attachment of a mail; what it may hold is limited as if it was a file."""
    try:
        yield from _bounded(_read_form(form, data, maker), maker.options, len(data))
    except (NotText, FileRefused) as error:
        yield maker.unreadable(None, str(error))
    except Exception as error:  # as of a file
        raise_if_full(error)
        yield maker.unreadable(None, explain(error))
