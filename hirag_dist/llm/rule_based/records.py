"""Replies written: delimited records or JSON, from names and texts that cannot break either."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.normalize import clean_name, one_line, shorten

_FORBIDDEN = re.compile(r"<\|[^|<>]{0,20}\|?>?|\|>|#{2,}|[<>|{}\x00-\x1f\ud800-\udfff]")


class EntityLine(NamedTuple):
    """An entity of a reply."""

    name: str
    type: str
    description: str


class RelationLine(NamedTuple):
    """A relation of a reply: between two names, or from a member's number to a summary entity."""

    source: str
    target: str
    description: str
    strength: int


def safe(text: str, n_chars: int = 260) -> str:
    """Return a text on one line, at most `n_chars` long, without anything that could end a record."""
    return shorten(one_line(_FORBIDDEN.sub(" ", text)), n_chars)


def safe_name(text: str) -> str:
    """Return a name as the reply's reader will read it."""
    return clean_name(safe(text, 120))


def write(
    entities: Sequence[EntityLine] | None,
    relations: Sequence[RelationLine] | None,
    form: str | None,
    members: bool = False,
) -> str:
    """Return a reply that holds the records; None leaves a kind of record out."""
    if form is not None:
        return _json(entities, relations, members)
    lines = [FIELD.join(("entity", one.name, one.type, one.description)) for one in entities or ()]
    lines += [
        FIELD.join(("relation", one.source, one.target, one.description, str(one.strength))) for one in relations or ()
    ]
    return "\n".join([*lines, DONE])


def _json(entities: Sequence[EntityLine] | None, relations: Iterable[RelationLine] | None, members: bool) -> str:
    data: dict[str, Any] = {}
    if entities is not None:
        data["entities"] = [one._asdict() for one in entities]
    if relations is not None and members:
        data["relations"] = [
            {
                "member": int(one.source),
                "entity": one.target,
                "description": one.description,
                "strength": one.strength,
            }
            for one in relations
        ]
    elif relations is not None:
        data["relations"] = [one._asdict() for one in relations]
    return json.dumps(data, ensure_ascii=False)
