"""A retrieval as text within a token budget, every record under a reference that an answer can cite.

Text from documents is put on single lines or behind its reference, so that it cannot pass for a record of its own, and
is `defused`, so that none of it cites another. Most texts are not changed by this, or by white space alone. The form of
a text says so: it is found once, when a snapshot is published (`storage.serving.renderings`), and a text of a known
form is not searched for marks again. Where a rule of this module, of `defused` or of `one_line` becomes stricter, the
number in `storage.serving.writer.SERVING` has to rise, so that forms are found again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from hirag_dist.core.retrieval.citations import UNSEEN, defused, defused_beginning
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.types import Citation, ClaimItem, CommunityItem, EntityItem, Retrieval, SourceItem, TripleItem

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


def community_text(title: str, level: int, rating: float, report: str, form: int = UNKNOWN_FORM) -> str:
    """Return a community as it stands behind its reference."""
    return f" {_titled(title, form)} (level {level}, rating {rating:g})\n{_lines(report, form)}"


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
    if form == SPACED:
        text = " ".join([part for each in text.split("  ") if (part := each.strip(" "))])
    return "\n".join([line for each in text.split("\n") if (line := each.strip(" "))])


def _safe(text: str) -> str:
    is_ordinary = (  # ASCII on one line without what `one_line` and `defused` look at, as most texts are
        text.isascii()
        and "(" not in text
        and "[" not in text
        and "<" not in text
        and ">" not in text
        and "  " not in text
        and text.isprintable()
        and text[:1] != " " != text[-1:]
    )
    return text if is_ordinary else defused(one_line(text))


def _body(text: str) -> str:
    if "  " not in text and text.replace("\n", "").isprintable():  # no white space but these two, as in most texts
        lines = [line.strip(" ") for line in text.split("\n")]
    else:
        lines = [one_line(line) for line in text.splitlines()]
    safe = defused("\n".join([line for line in lines if line]))
    return _BEGINNING.sub("\n ", f"\n{safe}")[1:]


_SHARES = {"local": 0.25, "bridge": 0.2, "global": 0.25, "sources": 0.3}
# GraphRAG's own for its local search: half for text units, 0.15 for reports, the rest for entities and their relations
_GRAPHRAG = {"local": 0.15, "bridge": 0.15, "claims": 0.05, "global": 0.15, "sources": 0.5}
_KINDS = {"E": "entity", "R": "relation", "K": "claim", "C": "community", "S": "chunk"}
RECORD_LETTERS = "".join(_KINDS)
LEVEL_OF_HEADING = {  # the headings of a rendered context
    "Entities": "local",
    "Bridge": "bridge",
    "Relations": "bridge",
    "Claims": "claims",
    "Communities": "global",
    "Sources": "sources",
}
_LEAST = 40  # tokens of a shortened record; less says nothing
_MARKS = 12  # tokens of a heading and a reference
_SEAM = re.compile("[A-Za-z] (?=[A-Za-z])")
_SEAM_CHARS = 100  # at the end of a text that are looked at for a seam
UNKNOWN_ANSWER = "I do not know"


MakeText = Callable[[Any, int], str]  # (item of a record, form of its texts) → its text
RecordTexts = Callable[
    [str, Sequence[Any], MakeText], Iterator[tuple[str, int]]
]  # (level, its items, make) → (text, tokens) of each record


def render_context(
    retrieval: Retrieval, max_tokens: int, count_tokens: Callable[[str], int], record_texts: RecordTexts | None = None
) -> Retrieval:
    """Return the retrieval with its context, references and token count filled in.

    Each level gets a share of the budget; what one leaves over goes to the next. The best passage has half of the
    budget where it needs it. A record is in whole, but for the last of a level, which may be shortened to what is left;
    where no level has room for a record, the best passage is in, shortened.

    Args:
        record_texts: yields text and tokens of a level's records without their references, for a cache that need not
            call `make`. A reference ends in a bracket and a text begins with a space, so their tokens add up.
    """
    if record_texts is None:

        def record_texts(level: str, items: Sequence[Any], make: MakeText) -> Iterator[tuple[str, int]]:
            texts = (make(item, UNKNOWN_FORM) for item in items)
            return ((text, count_tokens(text)) for text in texts)

    shares = _GRAPHRAG if retrieval.mode == "graphrag-local" else _SHARES
    sections: list[tuple[str, str, Sequence[Any]]] = [
        ("Entities", "local", retrieval.local),
        ("Bridge" if shares is _SHARES else "Relations", "bridge", retrieval.triples),
        ("Claims", "claims", retrieval.claims),
        ("Communities", "global", retrieval.communities),
        ("Sources", "sources", retrieval.sources),
    ]
    present = [section for section in sections if section[2]]
    rooms = _rooms({level: shares[level] for _, level, _ in present}, max_tokens)
    if retrieval.sources:
        _, size = next(record_texts("sources", retrieval.sources, _source))
        passage = min(size + _MARKS, max_tokens // 2)
        if passage > rooms["sources"]:
            others = {level: room for level, room in rooms.items() if level != "sources"}
            rooms = _rooms(others, max_tokens - passage) | {"sources": passage if others else max_tokens}
    parts: list[list[str]] = []
    refs: dict[str, str] = {}
    spare = 0
    used = 0
    for title, level, items in present:
        room = rooms[level] + spare
        lines, chosen, cost = _fit(title, level, items, room, count_tokens, record_texts)
        spare = room - cost
        used += cost
        refs |= chosen
        if lines:
            parts.append(lines)
    if present and not refs:
        lines, refs, used = _fit(*present[-1], max_tokens, count_tokens, record_texts, least=1)
        parts = [lines] if lines else []
    ends = Counter(map(_marks_at_end, chain.from_iterable(lines[:-1] for lines in parts)))
    for marks, count in ends.items():  # `_fit` counts one token for each end of a line
        used += count * (count_tokens(f"{marks}\n") - count_tokens(marks) - 1)
    for marks in [_marks_at_end(lines[-1]) for lines in parts[:-1]]:
        used += count_tokens(f"{marks}\n\n") - count_tokens(marks) - 1
    used -= len(parts[-1:])  # the last line has no end
    context = "\n\n".join("\n".join(lines) for lines in parts)
    return replace(retrieval, context=context, context_tokens=used, context_refs=refs)


def _marks_at_end(line: str) -> str:
    """Return what follows the last letter or digit of a line: the end of the line may be one token with it."""
    at = len(line)
    while at and not line[at - 1].isalnum():
        at -= 1
    return line[at:]


def _rooms(shares: Mapping[str, float], max_tokens: int) -> dict[str, int]:
    """Return the tokens of each level, by its share."""
    whole = sum(shares.values()) or 1.0
    return {level: int(max_tokens * share / whole) for level, share in shares.items()}


def _fit(
    title: str,
    level: str,
    items: Sequence[Any],
    room: int,
    count_tokens: Callable[[str], int],
    record_texts: RecordTexts,
    least: int = _LEAST,
) -> tuple[list[str], dict[str, str], int]:
    """Return the lines of a level within a number of tokens, the ids of their references, and their tokens.

    Args:
        least: Tokens that a record may be shortened to.
    """
    letter, id_field, make = _RECORDS[level]
    lines = [f"## {title}"]
    cost = count_tokens(lines[0]) + 1
    refs: dict[str, str] = {}
    for number, (item, (text, size)) in enumerate(zip(items, record_texts(level, items, make), strict=True), 1):
        ref = f"{letter}{number}"
        mark = f"[{ref}]"
        text = mark + text
        size += count_tokens(mark) + 1
        fits = cost + size <= room
        if not fits:
            left = room - cost
            if left < least:
                break
            text, size = _cut(mark, text, size, left, count_tokens)
            if cost + size > room:
                break
        lines.append(text)
        refs[ref] = getattr(item, id_field)
        cost += size
        if not fits:
            break
    return (lines, refs, cost) if refs else ([], {}, 0)


def _cut(mark: str, text: str, size: int, left: int, count_tokens: Callable[[str], int]) -> tuple[str, int]:
    """Return a record shortened to the tokens that are left, with its tokens."""
    n_chars = max(len(text) * left // size - 8, 1)
    counted, tokens = text, size - 1
    while True:
        cut = mark + defused_beginning(shorten(text, n_chars).removeprefix(mark))
        counted, tokens = cut, cut_tokens(counted, tokens, cut, count_tokens)
        if tokens < left or n_chars <= len(mark) + 1:
            return cut, tokens + 1
        n_chars = n_chars * 9 // 10


def cut_tokens(text: str, tokens: int, cut: str, count_tokens: Callable[[str], int]) -> int:
    """Return the tokens of the beginning of a text.

    A text that is parted before the space between two letters has the tokens of its parts, so the shorter of what is
    kept and what is left out is counted.

    Args:
        tokens: of the whole text.
        cut: its beginning; the last characters may differ.
    """
    if 2 * len(cut) > len(text):
        seams = [seam.start() + 1 for seam in _SEAM.finditer(cut, max(len(cut) - _SEAM_CHARS, 0))]
        if seams and text.startswith(cut[: seams[-1] + 2]):
            return tokens - count_tokens(text[seams[-1] :]) + count_tokens(cut[seams[-1] :])
    return count_tokens(cut)


def _entity(item: EntityItem, form: int) -> str:
    return entity_text(item.name, item.type, item.layer, item.description, form)


def _relation(item: TripleItem, form: int) -> str:
    return relation_text(item.source_name, item.target_name, item.description, form)


def _claim(item: ClaimItem, form: int) -> str:
    return f" {_safe(item.line)}"


def _community(item: CommunityItem, form: int) -> str:
    if item.report_missing:
        main_members = f"(level {item.level}, main members; its report is not written)\n{_body(item.report)}"
        return f" {_safe(item.title)} {main_members}"
    return community_text(item.title, item.level, item.rating, item.report, form)


def _source(item: SourceItem, form: int) -> str:
    return source_text(item.title, item.start, item.end, item.text, form)


_RECORDS: Final[Mapping[str, tuple[str, str, Callable[[Any, int], str]]]] = {  # letter of the reference, id field, text
    "local": ("E", "entity_id", _entity),
    "bridge": ("R", "relation_id", _relation),
    "claims": ("K", "claim_id", _claim),
    "global": ("C", "community_id", _community),
    "sources": ("S", "chunk_id", _source),
}


def citations(refs: Iterable[str], retrieval: Retrieval) -> tuple[Citation, ...]:
    """Return the citations of references to the retrieval's context."""
    titles = {f"E{at}": item.name for at, item in enumerate(retrieval.local, 1)}
    titles |= {f"R{at}": f"{item.source_name} — {item.target_name}" for at, item in enumerate(retrieval.triples, 1)}
    titles |= {
        f"K{at}": " → ".join(filter(None, (item.subject, item.object))) for at, item in enumerate(retrieval.claims, 1)
    }
    titles |= {f"C{at}": item.title for at, item in enumerate(retrieval.communities, 1)}
    titles |= {
        f"S{at}": f"{item.title}, characters {item.start}–{item.end}" for at, item in enumerate(retrieval.sources, 1)
    }
    return tuple(Citation(ref, _KINDS[ref[0]], retrieval.context_refs[ref], titles.get(ref, "")) for ref in refs)
