"""Request that checks the names found in a chunk, and what its reply holds (method verify)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.prompts.lenient_json import json_object, scalar_text
from hirag_dist.core.prompts.record_lines import record_lines
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.prompts.templates import DONE, FIELD, FORMATS, Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.language_check import other_language
from hirag_dist.core.text.normalize import name_key, one_line
from hirag_dist.types import ChatReply, ChatRequest, Message

VERIFY_TASK = "verify-graph"
Pair = tuple[int, int]  # positions of two candidates, the smaller one first

_KIND = re.compile(r"""^[\s\-*•>(\["'`“”]{0,20}(entity|unrelated)\b["'`“”*]*\s*$""", re.IGNORECASE)
_NUMBER = re.compile(r"[\s\[(#\-*•>]*(\d{1,6})(?:[\s\]).:]|$)")
_PAIR = re.compile(r"(?<![\d\-–])(\d{1,6})\s*[-–—/]\s*(\d{1,6})(?![\d\-–])")
_EDGES = " \t\"'`“”()[]{}"
_FORM = frozenset(line for line in FORMATS[VERIFY_TASK].splitlines() if FIELD in line)
_MAX_TYPE = 60


@dataclass(frozen=True, slots=True)
class VerifiedEntity:
    """A candidate (its position, from 0) that the model keeps; an empty type or description was not given."""

    candidate: int
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class Verification:
    """Result of the check of one chunk.

    Attributes:
        entities: candidates that are kept, each once, in the order of the reply.
        pairs: of kept candidates, without those that the model calls unrelated; in the order of the request.
    """

    entities: tuple[VerifiedEntity, ...]
    pairs: tuple[Pair, ...]


def verification_request(
    text: str,
    names: Sequence[str],
    pairs: Sequence[Pair],
    prompts: Prompts,
    entity_types: Sequence[str],
    form: str | None,
) -> ChatRequest:
    """Return the request that checks the candidates of one chunk, which it numbers from 1.

    Args:
        text: of the chunk.
        names: of the candidates.
        pairs: of candidates that may be related.
        prompts: in force.
        entity_types: to prefer.
        form: the task's name for a JSON reply, None for delimited records.
    """
    listed = "\n".join(f"{number}. {one_line(name)}" for number, name in enumerate(names, start=1))
    near = " ".join(f"{one + 1}-{other + 1}" for one, other in pairs)
    body = "\n".join((tagged("candidates", listed), tagged("pairs", near), tagged("text", text)))
    system = prompts.system(VERIFY_TASK, form, entity_types=", ".join(entity_types))
    return ChatRequest(role="extract", messages=(system, Message("user", body)), unit=unit_id(body), form=form)


def parse_verification(reply: ChatReply, names: Sequence[str], pairs: Sequence[Pair], read: str = "") -> Verification:
    """Return the candidates and pairs that a reply in JSON or delimited form keeps.

    A candidate may be given by its name in place of its number. Pairs are kept where both candidates are, and the
    reply does not call them unrelated.

    Args:
        reply: reply of the model.
        names, pairs: as the request showed them.
        read: the text that the model read, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: the reply keeps no candidate and does not say that there is none, or its descriptions are
            surely in another language than the text.
    """
    text = usable_text(reply)
    data = json_object(text)
    if data is not None and ("entities" in data):
        rows, struck = _of_json(data)
        said_none = not data.get("entities")
    else:
        rows, struck = _of_records(text)
        said_none = text.strip() == DONE or text.strip().lower() == "none"
    by_name = {name_key(name): place for place, name in reversed(list(enumerate(names)))}
    kept: dict[int, VerifiedEntity] = {}
    for who, type_, description in rows:
        place = _candidate(who, len(names), by_name)
        if place is not None:
            kept.setdefault(place, VerifiedEntity(place, _type(type_), one_line(description)))
    if not kept and not said_none:
        raise MalformedReply("the reply keeps no candidate in the requested form, and does not say that there is none")
    difference = other_language((one.description for one in kept.values()), read) if read else ""
    if difference:
        raise MalformedReply(f"{difference}; descriptions stay in the language of the text")
    unrelated = set(_pairs(struck))
    related = tuple(pair for pair in pairs if pair not in unrelated and kept.keys() >= set(pair))
    return Verification(tuple(kept.values()), related)


def _of_json(data: Mapping[str, Any]) -> tuple[list[tuple[str, str, str]], str]:
    entities, unrelated = data.get("entities"), data.get("unrelated")
    rows = [
        (_first(item, "id", "number", "name"), _first(item, "type"), _first(item, "text", "description"))
        for item in (entities if isinstance(entities, list) else [])
        if isinstance(item, dict)
    ]
    return rows, " ".join(map(_pair_text, unrelated if isinstance(unrelated, list) else [unrelated]))


def _first(item: Mapping[str, Any], *keys: str) -> str:
    return next((scalar_text(item[key]) for key in keys if key in item), "")


def _pair_text(value: Any) -> str:
    """Return one pair of a JSON reply as text: `1-2`, [1, 2] or {"source": 1, "target": 2}."""
    if isinstance(value, dict):
        value = list(value.values())[:2]
    if isinstance(value, list):
        return "-".join(map(scalar_text, value[:2]))
    return scalar_text(value)


def _of_records(text: str) -> tuple[list[tuple[str, str, str]], str]:
    rows: list[tuple[str, str, str]] = []
    struck: list[str] = []
    for line in record_lines(text.replace(DONE, "\n")):
        fields = [part.strip(_EDGES) for part in line.split(FIELD)]
        if len(fields) < 2 or line.strip() in _FORM:
            continue
        kind = _KIND.match(line.split(FIELD)[0])
        if kind is None or kind.group(1).lower() == "entity":
            who, type_, description = (*fields[0 if kind is None else 1 :], "", "")[:3]
            rows.append((who, type_, description))
        else:
            numbers = [field for field in fields[1:] if field.isdecimal()]
            struck.append("-".join(numbers) if len(numbers) == 2 else " ".join(fields[1:]))
    return rows, " ".join(struck)


def _pairs(text: str) -> list[Pair]:
    found = ((int(one) - 1, int(other) - 1) for one, other in _PAIR.findall(text))
    return [(min(pair), max(pair)) for pair in found]


def _candidate(who: str, n_candidates: int, by_name: Mapping[str, int]) -> int | None:
    match = _NUMBER.match(who)
    if match and 1 <= int(match.group(1)) <= n_candidates:
        return int(match.group(1)) - 1
    return by_name.get(name_key(who))


def _type(text: str) -> str:
    return one_line(text).strip(_EDGES + ".,;:").lower()[:_MAX_TYPE]
