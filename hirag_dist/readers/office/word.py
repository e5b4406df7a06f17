"""Word files (.docx): paragraphs, headings, lists, tables, text boxes and notes.

python-docx opens the package. The text is taken from the tree, since its paragraphs leave out insertions that are
tracked, content controls and text boxes. Headers, footers, comments and deleted text are left out, and numbers that
Word computes for headings and lists are not in the file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import docx
from lxml import etree

from hirag_dist.readers.formulas import formula_text, join_fraction, lowered_text, raised_text
from hirag_dist.readers.office.placed_text import PlacedText

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}oMath"
_SKIPPED = frozenset((
    *(f"{_W}{name}" for name in ("del", "moveFrom", "pPr", "rPr", "rt", "tblPr", "trPr", "tcPr", "sdtPr")),
    "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback",
))  # fmt: skip
_BREAKS = {f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}tab": " ", f"{_W}ptab": " ", f"{_W}noBreakHyphen": "-"}
_THROUGH = frozenset(f"{_W}{name}" for name in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag"))
_NOTES = {f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes"}
_NOTE_MARKS = {"footnotes": "^", "endnotes": "^e"}
_UNKNOWN_SYMBOL = "□"
_SYMBOLS = dict(
    zip(
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz\xa3\xa5\xae\xb0\xb1\xb2\xb3\xb4\xb7\xb8\xb9\xbb\xd6",
        "ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖαβχδεφγηιϕκλμνοπθρστυϖωξψζ≤∞→°±″≥×•÷≠≈√",
        strict=True,
    )
)
"""Characters of the font Symbol that texts use."""

_MAX_HEADING = 6
_MAX_STYLES = 50  # of which a style may be based on the next
Notes = dict[tuple[str, str], str]  # (footnotes or endnotes, id) → text


def read_word(data: bytes, max_chars: int) -> PlacedText:
    """Return the text of a Word file."""
    document = docx.Document(io.BytesIO(data))
    reader = _Reader(_heading_levels(document), _list_styles(document), _notes(document), PlacedText(max_chars))
    reader.read(document.element.body)
    reader.found.describe(document.core_properties.title, document.core_properties)
    return reader.found


class _Reader:
    def __init__(self, levels: dict[str, int], lists: set[str], notes: Notes, found: PlacedText) -> None:
        self._levels = levels
        self._lists = lists
        self._notes = notes
        self._in_list = False
        self.found = found

    def read(self, parent: etree._Element) -> None:
        """Add the blocks below an element."""
        for child in parent:
            if child.tag in _THROUGH:
                self.read(child)
            elif child.tag == f"{_W}p":
                self._paragraph(child)
            elif child.tag == f"{_W}tbl":
                self._table(child)

    def _paragraph(self, paragraph: etree._Element) -> None:
        text, notes = _text_of(paragraph)
        text = text.strip()
        style = _value(paragraph, "pPr", "pStyle")
        own = _value(paragraph, "pPr", "outlineLvl")
        level = int(own) + 1 if own.isdigit() else self._levels.get(style, 0)
        if 0 < level <= _MAX_HEADING and text:
            heading = " ".join(text.split())
            self.found.begin("section", section=heading)
            self.found.add(f"{'#' * level} {heading}")
            self._in_list = False
        else:
            number = _value(paragraph, "pPr", "numPr", "numId")
            is_item = (number not in ("", "0") or (not number and style in self._lists)) and bool(text)
            if is_item:
                depth = _value(paragraph, "pPr", "numPr", "ilvl")
                text = f"{'  ' * min(int(depth) if depth.isdigit() else 0, 8)}- {text}"
            self.found.add(text, "\n" if is_item and self._in_list else "\n\n")
            self._in_list = is_item
        for note in notes:
            if body := self._notes.get(note, ""):
                self.found.add(f"[{_NOTE_MARKS[note[0]]}{note[1]}]: {body}")

    def _table(self, table: etree._Element) -> None:
        rows = list(_children(table, "tr"))
        self._in_list = False
        if len(rows) == 1 and len(first := list(_children(rows[0], "tc"))) == 1:  # a frame
            self.read(first[0])
            return
        notes: list[tuple[str, str]] = []
        cells: list[list[str]] = []
        for row in rows:
            skipped = _value(row, "trPr", "gridBefore")
            cells.append([""] * (min(int(skipped), 64) if skipped.isdigit() else 0))
            for cell in _children(row, "tc"):
                merge = cell.find(f"{_W}tcPr/{_W}vMerge")
                text, own = _text_of(cell)
                notes += own
                is_below = merge is not None and merge.get(f"{_W}val", "continue") == "continue"
                span = _value(cell, "tcPr", "gridSpan")
                cells[-1] += ["" if is_below else text, *[""] * (min(int(span), 64) - 1 if span.isdigit() else 0)]
        self.found.table(cells)
        for note in notes:
            if body := self._notes.get(note, ""):
                self.found.add(f"[{_NOTE_MARKS[note[0]]}{note[1]}]: {body}")


def _children(parent: etree._Element, name: str) -> Iterator[etree._Element]:
    """Yield the children of a name, also those in content controls and insertions."""
    for child in parent:
        if child.tag == f"{_W}{name}":
            yield child
        elif child.tag in _THROUGH:
            yield from _children(child, name)


def _text_of(element: etree._Element) -> tuple[str, list[tuple[str, str]]]:
    """Return the text of an element, with a line end after each paragraph in it, and the notes that it refers to."""
    pieces: list[str] = []
    notes: list[tuple[str, str]] = []
    was_lowered = False
    walker = etree.iterwalk(element, events=("start", "end"))
    for event, each in walker:
        if event == "end":
            if each.tag == f"{_W}p" and each is not element:
                pieces.append("\n")
        elif each.tag in _SKIPPED:
            walker.skip_subtree()
        elif each.tag == f"{_W}t":
            if _position(each) == "subscript":
                join_fraction(pieces)
            after_digit = not was_lowered and bool(pieces) and pieces[-1][-1:].isdigit()
            pieces.append(_run_text(each, after_digit))
            was_lowered = _position(each) == "subscript"
        elif each.tag == _MATH:
            pieces.append(formula_text(each))
            walker.skip_subtree()
        elif each.tag == f"{_W}sym":
            pieces.append(_symbol(each))
        elif each.tag in _BREAKS:
            pieces.append(_BREAKS[each.tag])
        elif each.tag in _NOTES:
            note = (_NOTES[each.tag], each.get(f"{_W}id", ""))
            notes.append(note)
            pieces.append(f"[{_NOTE_MARKS[note[0]]}{note[1]}]")
    return "".join(pieces), notes


def _position(text: etree._Element) -> str:
    """Return superscript or subscript; another value, or empty, for text on the line."""
    return _value(text.getparent(), "rPr", "vertAlign")


def _run_text(text: etree._Element, after_digit: bool) -> str:
    """Return the text of a run with what its raised, lowered or struck form says."""
    run, shown = text.getparent(), text.text or ""
    match _position(text):
        case "superscript":
            shown = raised_text(shown)
        case "subscript":
            shown = lowered_text(shown, after_digit)
    strike = run.find(f"{_W}rPr/{_W}strike")
    is_struck = strike is not None and strike.get(f"{_W}val", "true") not in ("0", "false")
    return f"~~{shown}~~" if is_struck and shown.strip() else shown


def _symbol(element: etree._Element) -> str:
    """Return a character of the font Symbol; `□` for one of another font without Unicode."""
    try:
        code = int(element.get(f"{_W}char", ""), 16)
    except ValueError:
        return _UNKNOWN_SYMBOL
    if 0xF000 <= code <= 0xF0FF:
        font = element.get(f"{_W}font", "")
        return _SYMBOLS.get(chr(code - 0xF000), _UNKNOWN_SYMBOL) if font == "Symbol" else _UNKNOWN_SYMBOL
    return chr(code) if 0x20 <= code <= 0x10FFFF else _UNKNOWN_SYMBOL


def _value(element: etree._Element, *path: str) -> str:
    """Return the attribute `val` of a descendant; empty for none."""
    found = element.find("/".join(f"{_W}{name}" for name in path))
    return "" if found is None else str(found.get(f"{_W}val", ""))


def _styles(document: docx.document.Document) -> dict[str, etree._Element]:
    return {style.get(f"{_W}styleId", ""): style for style in document.styles.element.findall(f"{_W}style")}


def _chain(styles: dict[str, etree._Element], own: str) -> Iterator[etree._Element]:
    """Yield a style, and the styles that it is based on."""
    for _ in range(_MAX_STYLES):
        if own not in styles:
            return
        yield styles[own]
        own = _value(styles[own], "basedOn")


def _heading_levels(document: docx.document.Document) -> dict[str, int]:
    """Return the level of each style of headings, from 1."""
    styles = _styles(document)
    levels = {}
    for own in styles:
        for style in _chain(styles, own):
            outline, name = _value(style, "pPr", "outlineLvl"), _value(style, "name").lower()
            if outline.isdigit():
                levels[own] = int(outline) + 1
            elif name == "title":
                levels[own] = 1
            elif name.startswith("heading ") and name[8:].isdigit():
                levels[own] = int(name[8:])
            if own in levels:
                break
    return levels


def _list_styles(document: docx.document.Document) -> set[str]:
    """Return the styles whose paragraphs are items of a list."""
    styles = _styles(document)
    return {own for own in styles if any(style.find(f"{_W}pPr/{_W}numPr") is not None for style in _chain(styles, own))}


def _notes(document: docx.document.Document) -> Notes:
    found: Notes = {}
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    for relation in document.part.rels.values():
        kind = relation.reltype.rpartition("/")[2]
        if kind in _NOTE_MARKS and not relation.is_external:
            for note in etree.fromstring(relation.target_part.blob, parser):
                if note.get(f"{_W}type") in (None, "normal"):  # else a separator
                    found[kind, note.get(f"{_W}id", "")] = " ".join(_text_of(note)[0].split())
    return found
