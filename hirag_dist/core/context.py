"""A retrieval as text within a token budget, every record under a reference that an answer can cite."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hirag_dist.core.citations import CitationReader, defused
from hirag_dist.core.text import one_line, shorten
from hirag_dist.types import Citation, Retrieval

_SHARES = {"local": 0.25, "bridge": 0.2, "global": 0.25, "sources": 0.3}
_KINDS = {"E": "entity", "R": "relation", "C": "community", "S": "chunk"}
UNKNOWN_ANSWER = "I do not know"


@dataclass(frozen=True, slots=True)
class _Record:
    ref: str
    id: str
    text: str


def render_context(retrieval: Retrieval, max_tokens: int, count_tokens: Callable[[str], int]) -> Retrieval:
    """Return the retrieval with its context, references and token count filled in.

    Each level gets a share of the budget; what one leaves over goes to the next. A record is in whole, but for the
    last of a level, which may be shortened to what is left. Text from documents is put on single lines or behind
    its reference, so that it cannot pass for a record of its own, and is `defused`, so that none of it cites another.
    """
    sections = [
        ("Entities", "local", _entity_records(retrieval)),
        ("Bridge", "bridge", _relation_records(retrieval)),
        ("Communities", "global", _community_records(retrieval)),
        ("Sources", "sources", _source_records(retrieval)),
    ]
    held = {
        "local": retrieval.local,
        "bridge": retrieval.triples,
        "global": retrieval.communities,
        "sources": retrieval.sources,
    }
    present = [section for section in sections if held[section[1]]]
    whole = sum(_SHARES[level] for _, level, _ in present) or 1.0
    parts: list[str] = []
    refs: dict[str, str] = {}
    spare = 0
    used = 0
    for title, level, records in present:
        room = int(max_tokens * _SHARES[level] / whole) + spare
        lines, chosen, cost = _fit(title, records, room, count_tokens)
        spare = room - cost
        used += cost
        refs |= chosen
        if lines:
            parts.append("\n".join(lines))
    return replace(retrieval, context="\n\n".join(parts), context_tokens=used, context_refs=refs)


def _fit(
    title: str, records: Iterable[_Record], room: int, count_tokens: Callable[[str], int]
) -> tuple[list[str], dict[str, str], int]:
    lines = [f"## {title}"]
    cost = count_tokens(lines[0]) + 1
    refs: dict[str, str] = {}
    for record in records:
        text = record.text
        size = count_tokens(text) + 1
        if cost + size > room:
            left = room - cost
            if left < 40:
                break
            text = shorten(text, max(len(text) * left // size - 8, 1))
            size = count_tokens(text) + 1
            if cost + size > room:
                break
        lines.append(text)
        refs[record.ref] = record.id
        cost += size
        if text is not record.text:
            break
    return (lines, refs, cost) if refs else ([], {}, 0)


def _entity_records(retrieval: Retrieval) -> Iterator[_Record]:
    return (
        _Record(
            f"E{at}",
            item.entity_id,
            f"[E{at}] {_safe(item.name)} ({_safe(item.type)}, layer {item.layer}): {_safe(item.description)}",
        )
        for at, item in enumerate(retrieval.local, 1)
    )


def _relation_records(retrieval: Retrieval) -> Iterator[_Record]:
    return (
        _Record(
            f"R{at}",
            item.relation_id,
            f"[R{at}] {_safe(item.source_name)} — {_safe(item.target_name)}: {_safe(item.description)}",
        )
        for at, item in enumerate(retrieval.triples, 1)
    )


def _community_records(retrieval: Retrieval) -> Iterator[_Record]:
    return (
        _Record(
            f"C{at}",
            item.community_id,
            f"[C{at}] {_safe(item.title)} (level {item.level}, rating {item.rating:g})\n{_body(item.report)}",
        )
        for at, item in enumerate(retrieval.communities, 1)
    )


def _source_records(retrieval: Retrieval) -> Iterator[_Record]:
    return (
        _Record(
            f"S{at}",
            item.chunk_id,
            f"[S{at}] {_safe(item.title)}, characters {item.start}–{item.end}\n{_body(item.text)}",
        )
        for at, item in enumerate(retrieval.sources, 1)
    )


def _safe(text: str) -> str:
    return one_line(defused(text))


def _body(text: str) -> str:
    """Return text of several lines in which none begins as a record or a section does."""
    lines = (one_line(line) for line in defused(text).splitlines())
    return "\n".join(f" {line}" if line.startswith(("[", "##")) else line for line in lines if line)


def check_citations(text: str, retrieval: Retrieval) -> tuple[str, tuple[Citation, ...], int]:
    """Return the answer without references that name nothing, the citations it keeps, and how many were removed."""
    reader = CitationReader(retrieval.context_refs)
    checked = reader.feed(text) + reader.finish()
    return checked, citations(reader.cited, retrieval), reader.dropped


def citations(refs: Iterable[str], retrieval: Retrieval) -> tuple[Citation, ...]:
    """Return what references of the retrieval's context name."""
    titles = _titles(retrieval)
    return tuple(Citation(ref, _KINDS[ref[0]], retrieval.context_refs[ref], titles.get(ref, "")) for ref in refs)


def _titles(retrieval: Retrieval) -> dict[str, str]:
    titles = {f"E{at}": item.name for at, item in enumerate(retrieval.local, 1)}
    titles |= {f"R{at}": f"{item.source_name} — {item.target_name}" for at, item in enumerate(retrieval.triples, 1)}
    titles |= {f"C{at}": item.title for at, item in enumerate(retrieval.communities, 1)}
    titles |= {
        f"S{at}": f"{item.title}, characters {item.start}–{item.end}" for at, item in enumerate(retrieval.sources, 1)
    }
    return titles
