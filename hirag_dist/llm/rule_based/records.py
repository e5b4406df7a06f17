"""Replies written: delimited records or JSON, from names and texts that cannot break either."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hirag_dist.core.prompts.templates import BAR, DONE
from hirag_dist.core.text.normalize import clean_name, one_line, shorten

_FORBIDDEN = re.compile(r"<\|[^|<>]{0,20}\|?>?|\|>|#{2,}|[<>|{}\x00-\x1f\ud800-\udfff]")


class EntityLine(NamedTuple):
    """An entity of a reply."""

    name: str
    type: str
    description: str


class RelationLine(NamedTuple):
    """A relation of a reply, between two numbered entities."""

    source: int
    target: int
    description: str


class SummaryLine(NamedTuple):
    """A summary entity of a reply, and the numbers of the members that it covers."""

    name: str
    type: str
    description: str
    members: Sequence[int]


def safe(text: str, n_chars: int = 260) -> str:
    """Return a text on one line, at most `n_chars` long, without anything that could end a record."""
    return shorten(one_line(_FORBIDDEN.sub(" ", text)), n_chars)


def safe_name(text: str) -> str:
    """Return a name as the reply's reader will read it."""
    return clean_name(safe(text, 120))


def write(
    entities: Sequence[EntityLine] | None,
    relations: Iterable[RelationLine] | None,
    form: str | None,
    first: int = 1,
    descriptions: Sequence[str] = (),
) -> str:
    """Return a reply that holds the records; None leaves a kind of record out.

    Pairs of the same description share a record. A description that an end's entity has already is left out.

    Args:
        first: number of the first entity.
        descriptions: of the entities by number, those of earlier replies too.
    """
    stated: dict[str, list[list[int]]] = {}
    for one in relations or ():
        ends = sorted((one.source, one.target), key=lambda end: one.description not in descriptions[end - 1 : end])
        known = bool(one.description) and one.description in descriptions[ends[0] - 1 : ends[0]]
        stated.setdefault("" if known else one.description, []).append(ends)
    if form is None:
        lines = [BAR.join((str(at), *entity)) for at, entity in enumerate(entities or (), start=first)]
        lines += [
            BAR.join((" ".join("-".join(map(str, pair)) for pair in pairs), text)) for text, pairs in stated.items()
        ]
        return "\n".join([*lines, DONE])
    data: dict[str, object] = {}
    if entities is not None:
        numbered = relations is not None
        data["entities"] = [
            {"id": at, **entity._asdict()} if numbered else entity._asdict()
            for at, entity in enumerate(entities, start=first)
        ]
    if relations is not None:
        data["relations"] = [{"pairs": pairs, "description": text} for text, pairs in stated.items()]
    return json.dumps(data, ensure_ascii=False)


def write_summaries(summaries: Sequence[SummaryLine], form: str | None) -> str:
    """Return a reply that holds summary entities."""
    if form is None:
        rows = [("entity", *one[:3], " ".join(map(str, one.members))) for one in summaries]
        return "\n".join([*map(BAR.join, rows), DONE])
    data = [one._asdict() | {"members": list(one.members)} for one in summaries]
    return json.dumps({"entities": data}, ensure_ascii=False)
