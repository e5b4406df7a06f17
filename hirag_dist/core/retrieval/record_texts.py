"""Texts of records as contexts hold them, behind their references.

Text from documents is put on single lines or behind its reference, so that it cannot pass for a record of its own, and
is `defused`, so that none of it cites another. Most texts are not changed by this, or by white space alone. The form of
a text says so: it is found once, when a snapshot is published (`storage.serving.renderings`), and a text of a known
form is not searched for marks again. Where a rule of this module, of `defused` or of `one_line` becomes stricter, the
number in `storage.serving.writer.SERVING` has to rise, so that forms are found again.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from hirag_dist.core.entities.claim_text import claim_text
from hirag_dist.core.retrieval.citations import UNSEEN, defused
from hirag_dist.core.text.normalize import one_line
from hirag_dist.types import ClaimItem

UNKNOWN_FORM: Final = 0  # to be searched
PLAIN: Final = 1  # nothing changes but white space at the ends of lines, and empty lines
SPACED: Final = 2  # the same with runs of spaces made one
_BEGINNING = re.compile(rf"\n(?=[{UNSEEN}]*(?:\[|##))")  # of a line that looks like a record or a section


def entity_text(name: str, kind: str, layer: int, description: str, form: int = UNKNOWN_FORM) -> str:
    """Return an entity as it stands behind its reference. Snapshots hold the tokens of all these texts."""
    if form == PLAIN:
        return f" {name} {_kind_text(kind, layer)}: {description}"
    return f" {_safe(name)} {_kind_text(kind, layer)}: {_safe(description)}"


@lru_cache(4096)
def _kind_text(kind: str, layer: int) -> str:
    return defused(f"({one_line(kind)}, layer {layer})")


def relation_text(source: str, target: str, description: str, form: int = UNKNOWN_FORM) -> str:
    """Return a relation as it stands behind its reference."""
    if form == PLAIN:
        return f" {source} — {target}: {description}"
    return "".join(relation_parts(source, target, description))


def relation_parts(source: str, target: str, description: str) -> tuple[str, str, str]:
    """Return the same in parts that each begin with a space, so that the tokens of all together are those of each."""
    return f" {_safe(source)} —", f" {_safe(target)}:", f" {_safe(description)}"


def claim_line(claim: ClaimItem) -> str:
    """Return a claim as it stands behind its reference."""
    return f" {_safe(claim_text(claim))}"


def community_text(title: str, level: int, rating: float, report: str, form: int = UNKNOWN_FORM) -> str:
    """Return a community as it stands behind its reference."""
    return f" {_titled(title, form)} (level {level}, rating {rating:g})\n{_lines(report, form)}"


def members_text(title: str, level: int, members: str) -> str:
    """Return a community without a report as it stands behind its reference."""
    return f" {_safe(title)} (level {level}, main members; its report is not written)\n{_body(members)}"


def source_text(title: str, start: int, end: int, text: str, form: int = UNKNOWN_FORM) -> str:
    """Return a chunk as it stands behind its reference."""
    return f" {_titled(title, form)}, characters {start}–{end}\n{_lines(text, form)}"


def is_plain(text: str) -> bool:
    """Return whether a text on one line, a name or a description, is left as it is."""
    return _safe(text) == text


def text_form(title: str, text: str) -> int:
    """Return the form of a title and a text of several lines, for `community_text` and `source_text`."""
    if is_plain(title):
        body = _body(text)
        for form in (PLAIN, SPACED):
            if _lines(text, form) == body:
                return form
    return UNKNOWN_FORM


def _titled(title: str, form: int) -> str:
    return title if form else _safe(title)


def _lines(text: str, form: int) -> str:
    """Return text of several lines in which none begins as a record or a section does."""
    if form == UNKNOWN_FORM:
        return _body(text)
    while form == SPACED and "  " in text:
        text = text.replace("  ", " ")
    return "\n".join([line for each in text.split("\n") if (line := each.strip(" "))])


def _safe(text: str) -> str:
    if _is_ordinary(text):
        return text
    return defused(one_line(text))


def _is_ordinary(text: str) -> bool:
    """Return whether a text is ASCII on one line without what `one_line` and `defused` look at, as most texts are."""
    return (
        text.isascii()
        and "(" not in text
        and "[" not in text
        and "<" not in text
        and ">" not in text
        and "  " not in text
        and text.isprintable()
        and text[:1] != " " != text[-1:]
    )


def _body(text: str) -> str:
    if "  " not in text and text.replace("\n", "").isprintable():  # no white space but these two, as in most texts
        lines = [line.strip(" ") for line in text.split("\n")]
    else:
        lines = [one_line(line) for line in text.splitlines()]
    safe = defused("\n".join([line for line in lines if line]))
    return _BEGINNING.sub("\n ", f"\n{safe}")[1:]
