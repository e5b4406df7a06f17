"""Formulas in MathML (HTML) and Office Math (Word) → text on a line: `10^4`, `3/4`, `x_1`, `27^(1/3)`."""

from __future__ import annotations

import re

from lxml import etree

_ATOM = re.compile(r"[\w.,]+")
_LEAVES = frozenset(("mi", "mn", "mo", "mtext", "ms", "t"))
_SKIPPED = frozenset(("annotation", "annotation-xml", "mphantom"))
_SIGN = re.compile(r"[-+−–]?\d[\d.,]*")
_MAX_DEPTH = 100


def formula_text(element: etree._Element, depth: int = 0) -> str:
    """Return a formula as text.

    >>> formula_text(etree.fromstring("<math><mfrac><mn>3</mn><mn>4</mn></mfrac></math>"))
    '3/4'
    """
    name = _name(element)
    if name in _SKIPPED or name.endswith("Pr") or depth > _MAX_DEPTH:
        return ""
    if name in _LEAVES:
        return "".join(element.itertext()).strip() if name != "t" else element.text or ""
    parts = [(_name(child), formula_text(child, depth + 1)) for child in element if isinstance(child.tag, str)]
    texts = [text for child, text in parts if not child.endswith("Pr")]
    named = dict(parts)
    match name, texts:
        case "mfrac", [top, bottom]:
            return f"{_group(top)}/{_group(bottom)}"
        case "f", _:
            return f"{_group(named.get('num', ''))}/{_group(named.get('den', ''))}"
        case "msup" | "sSup", [base, power]:
            return f"{_group(base)}^{_group(power)}"
        case "msub" | "sSub", [base, index]:
            return f"{base}_{_group(index)}"
        case "msubsup" | "sSubSup", [base, index, power]:
            return f"{base}_{_group(index)}^{_group(power)}"
        case "mroot", [base, degree]:
            return _root(base, degree)
        case "rad", _:
            return _root(named.get("e", ""), named.get("deg", ""))
        case "msqrt", _:
            return _root("".join(texts), "")
        case "mfenced" | "d", _:
            return f"({', '.join(texts)})"
        case "mtr" | "mlabeledtr" | "mr", _:
            return f"{' '.join(texts)}; "
    return "".join(texts)


def raised_text(text: str) -> str:
    """Return a superscript as text, with `^` before a number, which would change the number before it.

    >>> raised_text("6"), raised_text("st")
    ('^6', 'st')
    """
    return f"^{text}" if _SIGN.fullmatch(text.strip()) else text


def lowered_text(text: str, after_digit: bool) -> str:
    """Return a subscript as text, with `_` before a number after a digit, which would change the number before it.

    >>> lowered_text("2", after_digit=True), lowered_text("2", after_digit=False)
    ('_2', '2')
    """
    return f"_{text}" if after_digit and _SIGN.fullmatch(text.strip()) else text


def join_fraction(pieces: list[str]) -> None:
    """Take the mark from a raised number that a slash follows, at the end of a text that a lowered number goes on.

    >>> pieces = ["3", "^1", "/"]
    >>> join_fraction(pieces)
    >>> pieces
    ['3', ' 1', '/']
    """
    *before, raised, slash = ["", "", "", *pieces][-4:]
    if slash.strip() in ("/", "\u2044") and raised.startswith("^"):
        pieces[-2] = (" " if before[-1][-1:].isdigit() else "") + raised[1:]


def _name(element: etree._Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _group(text: str) -> str:
    return text if _ATOM.fullmatch(text) else f"({text})"


def _root(base: str, degree: str) -> str:
    return f"{_group(base)}^(1/{degree})" if degree else f"√{_group(base)}"
