"""Request that checks the names found in a chunk, and what its reply holds (method verify)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.prompts.lenient_json import json_object, scalar_text
from hirag_dist.core.prompts.record_lines import record_lines
from hirag_dist.core.prompts.reply_validation import MalformedReply, usable_text
from hirag_dist.core.prompts.templates import BAR, DONE, FIELD, FORMATS, Prompts, tagged
from hirag_dist.core.text.ids import unit_id
from hirag_dist.core.text.language_check import other_language
from hirag_dist.core.text.normalize import name_key, one_line
from hirag_dist.types import ChatReply, ChatRequest, Message

VERIFY_TASK = "verify-graph"
Pair = tuple[int, int]  # positions of two candidates, the smaller one first

_KIND = re.compile(r"""^[\s\-*•>(\["'`“”]{0,20}(entity|unrelated)\b["'`“”*]*\s*$""", re.IGNORECASE)
_NUMBER = re.compile(r"[\s\[(#\-*•>]*(\d{1,6})(?:[\s\]).:]|$)")
_PAIR = re.compile(
    r"(?<![\d\-–])(\d{1,6})\s*[-–—/]\s*(\d{1,6})(?![\d\-–])((?:,\s?\d{1,6}(?!\d|\s*[-–—/])){0,60})"
)  # 1-2, or 1-2,5 for 1-2 and 1-5
_EDGES = " \t\"'`“”()[]{}"
_ROW = re.compile(r"^[\s>*•\-]{0,20}\|")  # of a table
_FORM = FORMATS[VERIFY_TASK].splitlines()[1]  # a reply may well hold the other lines
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
        text: of the chunk, or the sentences of it that tell of the candidates.
        names: of the candidates.
        pairs: of candidates that may be related.
        prompts: in force.
        entity_types: to prefer.
        form: the task's name for a JSON reply, None for delimited records.
    """
    listed = "\n".join(f"{number}. {one_line(name)}" for number, name in enumerate(names, start=1))
    partners: dict[int, list[str]] = {}
    for one, other in sorted(pairs):
        partners.setdefault(one + 1, []).append(str(other + 1))
    near = " ".join(f"{one}-{','.join(others)}" for one, others in partners.items())
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
            type_, description = _without_name(names[place], type_, description)
            kept.setdefault(place, VerifiedEntity(place, _type(type_), one_line(description)))
    if not kept and not said_none:
        raise MalformedReply("the reply keeps no candidate in the requested form, and does not say that there is none")
    difference = other_language((one.description for one in kept.values()), read) if read else ""
    if difference:
        raise MalformedReply(f"{difference}; descriptions stay in the language of the text")
    unrelated = set(listed_pairs(struck))
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
        mark = FIELD if FIELD in line else BAR
        if mark == BAR and _ROW.match(line):
            line = _ROW.sub("", line).rstrip().removesuffix(BAR)
        kind = _KIND.match(line.split(mark)[0])
        if mark not in line or line.strip() == _FORM:
            continue
        if kind is None or kind.group(1).lower() == "entity":
            fields = line.split(mark, 2 if kind is None else 3)[0 if kind is None else 1 :]
            who, type_, description = (*(field.strip(_EDGES) for field in fields), "", "")[:3]
            rows.append((who, type_, description))
        else:
            fields = [field.strip(_EDGES) for field in line.split(mark)[1:]]
            numbers = [field for field in fields if field.isdecimal()]
            struck.append("-".join(numbers) if len(numbers) == 2 else " ".join(fields))
    return rows, " ".join(struck)


def listed_pairs(text: str) -> list[Pair]:
    """Return the pairs of numbers from 1 that a text lists, as positions from 0.

    >>> listed_pairs("1-2,5 4-3")
    [(0, 1), (0, 4), (2, 3)]
    """
    found: list[Pair] = []
    for one, other, more in _PAIR.findall(text):
        for number in (other, *re.findall(r"\d+", more)):
            first, second = sorted((int(one) - 1, int(number) - 1))
            found.append((first, second))
    return found


def _candidate(who: str, n_candidates: int, by_name: Mapping[str, int]) -> int | None:
    match = _NUMBER.match(who)
    if match and 1 <= int(match.group(1)) <= n_candidates:
        return int(match.group(1)) - 1
    return by_name.get(name_key(who))


def _without_name(name: str, type_: str, description: str) -> tuple[str, str]:
    """Return the type and description of a record that may repeat the candidate's name in front of them."""
    if not type_ or name_key(type_) != name_key(name):
        return type_, description
    mark = FIELD if FIELD in description else BAR
    first, found, rest = description.partition(mark)
    return (first.strip(_EDGES), rest.strip(_EDGES)) if found else ("", description)


def _type(text: str) -> str:
    return one_line(text).strip(_EDGES + ".,;:").lower()[:_MAX_TYPE]
