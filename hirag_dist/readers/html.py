"""HTML: the text that a browser would show, with blocks on lines of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice

from lxml import etree

from hirag_dist.readers.document_builder import DocumentBuilder
from hirag_dist.readers.encoding import clean_text, decode_text
from hirag_dist.readers.formulas import formula_text, lowered_text, raised_text
from hirag_dist.readers.model import Document, TextPlace, Unreadable

_DROPPED = frozenset((
    "script", "style", "template", "nav", "noscript", "svg", "iframe", "object", "head", "datalist",
))  # fmt: skip
_PARAGRAPHS = frozenset((
    "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "dl", "table", "pre", "blockquote", "section",
    "article", "main", "header", "footer", "aside", "figure", "form", "hr",
))  # fmt: skip
_LINES = frozenset((
    "div", "li", "tr", "br", "dt", "dd", "caption", "figcaption", "address", "fieldset", "legend",
    "details", "summary", "option", "body",
))  # fmt: skip
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_ANCHORS = _PARAGRAPHS | _LINES | {"a"}  # elements whose identifier is the anchor of a place
_MAX_NAME_CHARS = 200
_CELLS = frozenset(("td", "th"))
_PREFORMATTED = frozenset(("pre", "textarea"))
_CHARSET = re.compile(rb"""<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*["']?([A-Za-z0-9._:-]+)""", re.IGNORECASE)
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_SPACES = re.compile(r"[ \t\n\r\f]+")
_HEAD_BYTES = 4096
_LONG_TAG = re.compile(r"<[A-Za-z][^<>]{4096,}")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")
MAX_ATTRIBUTES = 10_000
"""Of one element; libxml2 takes time quadratic in them."""
_ELEMENT_BYTES, _ATTRIBUTE_BYTES = 400, 150
"""Memory of the parsed page, about."""
_MEMORY_FACTOR = 8
_MAX_META = 1000
"""Meta elements whose content is read."""
_MAX_DEPTH = 2048
"""Where libxml2 stops."""


def read_html(data: bytes, maker: DocumentBuilder) -> Document | Unreadable:
    """Return an HTML page as a document.

    Scripts, styles, comments, templates, navigation and hidden elements go. Formulas are text (`formula_text`).
    Paragraphs, headings, lists and tables are apart by an empty line, list items and table rows by a line end, cells by
    ` | `. The title is that of the page, else its first h1, else the file's stem. Places are sections with the anchors
    before them.

    Raises:
        NotText: the data is binary.
        WrongEncoding: it is not in the encoding that the options name.
    """
    page = parse_page(data, _MEMORY_FACTOR * maker.options.max_file_bytes, maker.options.encoding)
    if isinstance(page, str):
        return maker.unreadable(None, page)
    return maker.document(
        page.text, title=page.title, default_title=page.heading, places=page.places, properties=page.properties
    )


@dataclass(frozen=True, slots=True)
class HtmlText:
    """The text of a page of HTML, not cleaned.

    Attributes:
        title, heading: of the page, and of its first h1; None for none.
        properties: `lang`, and the content of its meta elements by name.
    """

    text: str
    places: list[TextPlace]
    title: str | None
    heading: str | None
    properties: dict[str, object]


def parse_page(data: bytes, max_tree_bytes: int, encoding: str | None = None) -> HtmlText | str:
    """Return the text of a page, or the reason why it has none.

    Args:
        max_tree_bytes: limit of the memory of the parsed page.
        encoding: that the user names; as `named` of `decode_text`.

    Raises:
        NotText: the data is binary.
        WrongEncoding: it is not in the named encoding.
    """
    charset = _CHARSET.search(data[:_HEAD_BYTES])
    text = clean_text(decode_text(data, None if charset is None else charset[1].decode("ascii"), encoding))
    attributes = [len(_SPACES.findall(_QUOTED.sub("", tag[0]))) for tag in _LONG_TAG.finditer(text)]
    if max(attributes, default=0) > MAX_ATTRIBUTES:
        return f"an element of the page has more than {MAX_ATTRIBUTES} attributes"
    if text.count("<") * _ELEMENT_BYTES + sum(attributes) * _ATTRIBUTE_BYTES > max_tree_bytes:
        return "the page has too many elements: split it, or raise reading.max_file_bytes"
    parser = etree.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True, remove_pis=True)
    parser.feed(text.encode())
    root = parser.close()
    if root is None:  # nothing but white space and comments
        return "the text is empty"
    visible = _visible_text(root)
    if visible is None:
        return f"the page is nested too deeply: more than {_MAX_DEPTH - 1} elements"
    title, heading = _text_of(root.find(".//title")), _text_of(root.find(".//h1"))
    return HtmlText(visible.text(), visible.places(), title, heading, _properties(root))


def _properties(root: etree._Element) -> dict[str, object]:
    """Return the properties of a page: `lang`, and the content of its meta elements by name; of equal names the first.

    >>> page = '<html lang="de"><meta name="author" content="A"><meta property="og:type" content="article"></html>'
    >>> _properties(etree.HTML(page))
    {'lang': 'de', 'author': 'A', 'og:type': 'article'}
    """
    found: dict[str, object] = {"lang": root.get("lang")}
    for element in islice(root.iter("meta"), _MAX_META):
        name = element.get("name") or element.get("property") or element.get("itemprop")
        if name and len(found) < _MAX_META:
            found.setdefault(name, element.get("content"))
    return found


def _text_of(element: etree._Element | None) -> str | None:
    return None if element is None else etree.tostring(element, method="text", encoding="unicode", with_tail=False)


def _visible_text(root: etree._Element) -> _Lines | None:
    """Return the text; None where the parser gave up for depth, which it does without an error."""
    lines = _Lines()
    depth = 0
    walker = etree.iterwalk(root, events=("start", "end"))
    for event, element in walker:
        tag = str(element.tag)
        shown = not (
            tag in _DROPPED or tag == "math" or "hidden" in element.attrib or _HIDDEN.search(element.get("style", ""))
        )
        if event == "start":
            depth += 1
            if depth >= _MAX_DEPTH:
                return None
            if shown and tag in ("sup", "sub") and (number := _raised_or_lowered(element, lines.ends_in_digit)):
                lines.add(number)
                walker.skip_subtree()
            elif shown:
                lines.open(tag)
                lines.mark(_anchor(element, tag), _section(element, tag))
                lines.add(element.text)
            else:
                if tag == "math":
                    lines.add(formula_text(element))
                walker.skip_subtree()
        else:
            depth -= 1
            if shown:
                lines.close(tag)
            if element is not root:
                lines.add(element.tail)
    return lines


def _raised_or_lowered(element: etree._Element, after_digit: bool) -> str:
    """Return a number in `sup` or `sub` so that it does not change the number before it; "" for other content."""
    text = " ".join("".join(element.itertext()).split())
    raised = raised_text(text)
    if raised == text:
        return ""
    if element.tag == "sub":
        return lowered_text(text, after_digit)
    below = element.getnext()
    is_fraction = (element.tail or "").strip() in ("/", "\u2044") and below is not None and below.tag == "sub"
    return f" {text}" if is_fraction and after_digit else text if is_fraction else raised


def _anchor(element: etree._Element, tag: str) -> str:
    """Return the identifier under which a link finds a block, a heading or a named anchor; empty for none."""
    if tag in _HEADINGS:
        own = element.get("id") or next((each for each in map(_own_anchor, element.iterdescendants("*")) if each), "")
    else:
        own = _own_anchor(element) if tag in _ANCHORS else ""
    return str(own).strip()[:_MAX_NAME_CHARS]


def _own_anchor(element: etree._Element) -> str:
    return str(element.get("id") or (element.get("name") if element.tag == "a" else "") or "")


def _section(element: etree._Element, tag: str) -> str:
    """Return the text of a heading; empty for other elements."""
    text = _text_of(element) if tag in _HEADINGS else None
    return " ".join(clean_text(text).split())[:_MAX_NAME_CHARS] if text else ""


class _Lines:
    """Text put together from pieces, with white space as a browser collapses it."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._n_chars = 0
        self._gap = ""
        self._preformatted = 0
        self._cell = False
        self._anchor = self._heading = ""
        self._is_marked = False
        self._marks: list[tuple[int, str, str]] = []  # where a place begins, its anchor and section

    @property
    def ends_in_digit(self) -> bool:
        return not self._gap and bool(self._pieces) and self._pieces[-1][-1:].isdigit()

    def mark(self, anchor: str, section: str) -> None:
        """Begin a place with the next text, if there is an anchor or a section."""
        self._anchor = anchor or self._anchor
        self._heading = section or self._heading
        self._is_marked = self._is_marked or bool(anchor or section)

    def open(self, tag: str) -> None:
        self._preformatted += tag in _PREFORMATTED
        if tag in _CELLS:
            if self._cell:
                self._gap = " | "
            return
        if tag == "tr":
            self._cell = False
        self._break(tag)

    def close(self, tag: str) -> None:
        self._preformatted -= tag in _PREFORMATTED
        if tag in _CELLS:
            self._cell = True
        else:
            self._break(tag)

    def add(self, text: str | None) -> None:
        if not text:
            return
        if self._preformatted:
            self._append(self._gap, text)
            self._gap = ""
            return
        words = _SPACES.sub(" ", text)
        if words[0] == " " and not self._gap:
            self._gap = " "
        body = words.strip(" ")
        if body:
            self._append(self._gap if self._pieces else "", body)
            self._gap = " " if words[-1] == " " else ""

    def text(self) -> str:
        return "".join(self._pieces)

    def places(self) -> list[TextPlace]:
        """Return the section and the nearest anchor before each stretch of the text."""
        ends = [*(start for start, _, _ in self._marks[1:]), self._n_chars]
        return [
            TextPlace(start, end, "section", section=section, anchor=anchor)
            for (start, anchor, section), end in zip(self._marks, ends, strict=False)
        ]

    def _append(self, gap: str, text: str) -> None:
        if self._is_marked:
            self._marks.append((self._n_chars + len(gap), self._anchor, self._heading))
            self._is_marked = False
        self._pieces.append(gap + text)
        self._n_chars += len(gap) + len(text)

    def _break(self, tag: str) -> None:
        if tag in _PARAGRAPHS:
            self._gap = "\n\n"
        elif tag in _LINES and "\n" not in self._gap:
            self._gap = "\n"
