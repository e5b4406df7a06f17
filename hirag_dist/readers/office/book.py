"""Electronic books (.epub): the chapters in reading order, each read as a page of HTML."""

from __future__ import annotations

import posixpath
import zipfile
from urllib.parse import unquote

from lxml import etree

from hirag_dist.readers.encoding import NotText
from hirag_dist.readers.html import parse_page
from hirag_dist.readers.model import FileRefused
from hirag_dist.readers.office.archive import read_part
from hirag_dist.readers.office.placed_text import PlacedText

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_FONT_MARKS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")  # fonts alone, by these
_EXTENSIONS = (".xhtml", ".html", ".htm")
_TYPES = frozenset(("application/xhtml+xml", "text/html", "application/x-dtbook+xml"))


def read_book(archive: zipfile.ZipFile, max_chars: int, max_tree_bytes: int) -> tuple[PlacedText, list[str]]:
    """Return the text of a book, and why each chapter is lost that cannot be read.

    Args:
        max_tree_bytes: limit of the memory of a parsed chapter.

    Raises:
        FileRefused: it is no book, or is encrypted.
    """
    if (encryption := read_part(archive, _ENCRYPTION)) is not None:
        methods = [each.get("Algorithm", "") for each in _parsed(encryption, _ENCRYPTION).iter("{*}EncryptionMethod")]
        if any(method not in _FONT_MARKS for method in methods):
            raise FileRefused("the book is encrypted (DRM): only its publisher's programs can read it")
    container = read_part(archive, _CONTAINER)
    root = None if container is None else _parsed(container, _CONTAINER).find(".//{*}rootfile")
    path = "" if root is None else root.get("full-path", "")
    package = read_part(archive, path) if path else None
    if package is None:
        raise FileRefused("the file is no electronic book: it names no package document")
    tree = _parsed(package, path)
    items = {item.get("id"): item for item in tree.iter("{*}item")}
    names = {name.lower(): name for name in archive.namelist()}
    found = PlacedText(max_chars)
    lost: list[str] = []
    for reference in tree.iter("{*}itemref"):
        item = items.get(reference.get("idref"))
        if item is None:
            lost.append(f"chapter {reference.get('idref', '')[:80]} is not in the list of the book's files")
            continue
        href = unquote(item.get("href", "").partition("#")[0])
        if reference.get("linear") == "no" or "nav" in item.get("properties", "").split():
            continue
        if item.get("media-type") in _TYPES or href.lower().endswith(_EXTENSIONS):
            name = posixpath.normpath(posixpath.join(posixpath.dirname(path), href))
            try:
                data = read_part(archive, names.get(name.lower(), name))
                if data is None:
                    raise FileRefused(f"chapter {href[:80]} is not in the file")
                _add_chapter(data, href, found, max_tree_bytes)
            except FileRefused as error:
                lost.append(str(error))
    for element in tree.iter("{http://purl.org/dc/elements/1.1/}*"):
        found.properties.setdefault(element.tag.rpartition("}")[2], (element.text or "").strip())
    found.title = found.properties.get("title", "")
    return found, lost


def _add_chapter(data: bytes, href: str, found: PlacedText, max_tree_bytes: int) -> None:
    """Add a chapter: a place for each of its sections, and one for what comes before the first.

    Raises:
        FileRefused: it is nested too deeply, or too large.
    """
    try:
        page = parse_page(data, max_tree_bytes)
    except NotText as error:
        raise FileRefused(f"chapter {href[:80]} is no text") from error
    if isinstance(page, str):
        raise FileRefused(f"chapter {href[:80]}: {page}")
    name = page.heading or page.title or ""
    first = page.places[0].start if page.places else len(page.text)
    gap = "\n\n"
    if page.text[:first].strip():
        found.begin("chapter", section=name, anchor=href)
        found.add(page.text[:first].rstrip())
    for place in page.places:
        found.begin("chapter", section=place.section or name, anchor=f"{href}#{place.anchor}" if place.anchor else href)
        before = page.text[: place.start]
        if place.start > first:  # the gap within the chapter
            gap = before[len(before.rstrip()) :]
        found.add(page.text[place.start : place.end].rstrip(), gap)
        gap = "\n\n"


def _parsed(data: bytes, name: str) -> etree._Element:
    try:
        return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False))
    except etree.XMLSyntaxError as error:
        raise FileRefused(f"the file is damaged: {name} is no XML") from error
