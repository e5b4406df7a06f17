"""A conversation read, and its reply written: tasks, rounds, tagged texts, records that no text can break."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from hirag_dist.core.prompts.records import RelationRecord
from hirag_dist.core.prompts.templates import BAR, CONTINUE, DONE
from hirag_dist.core.text.normalize import clean_name, one_line, shorten
from hirag_dist.types import Message

_TASK = re.compile(r"\s*Task:\s*([\w-]+)")
_GLEANS = CONTINUE.partition("{things}")[2]
_UNIT = re.compile(r"<unit-(\d+)>\n(.*?)\n</unit-\1>", re.DOTALL)
_FORBIDDEN = re.compile(r"<\|[^|<>]{0,20}\|?>?|\|>|#{2,}|[<>|{}\x00-\x1f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """Request of a conversation.

    Attributes:
        task: named in the first line of the system message; empty where it is not.
        form: name of the reply's JSON form, None for delimited or plain text.
        round: how often what was missing has been asked for: 0 for a first pass. A question to reply again, because a
            reply could not be used, begins no round.
    """

    task: str
    form: str | None
    system: str
    body: str
    round: int

    def between(self, tag: str) -> str:
        """Return the text between a tag and its end, or an empty text."""
        start = self.body.find(f"<{tag}>")
        if start < 0:
            return ""
        start += len(tag) + 2
        end = self.body.find(f"</{tag}>", start)
        return self.body[start : end if end >= 0 else len(self.body)].strip("\n")


def asked(messages: Sequence[Message], form: str | None) -> ParsedRequest:
    """Return the request of a conversation."""
    system = "\n".join(message.content for message in messages if message.role in ("system", "developer"))
    body = next((message.content for message in messages if message.role == "user"), "")
    match = _TASK.match(system)
    rounds = sum(message.role == "user" and message.content.endswith(_GLEANS) for message in messages)
    return ParsedRequest(match.group(1) if match else form or "", form, system, body, rounds)


def each_unit(alone: Callable[[ParsedRequest], str]) -> Callable[[ParsedRequest], str]:
    """Return the function that replies to a packed task, from the one that replies to one unit."""

    def packed(ask: ParsedRequest) -> str:
        form = None if ask.form is None else ask.form.removesuffix("-pack")
        task = ask.task.removesuffix("-pack")
        replies = [
            (int(unit.group(1)), alone(replace(ask, task=task, form=form, body=unit.group(2))))
            for unit in _UNIT.finditer(ask.body)
        ]
        if form is not None:
            units = [{"unit": number, **json.loads(reply)} for number, reply in replies]
            return json.dumps({"units": units}, ensure_ascii=False)
        parts = [f"unit{BAR}{number}\n{reply.removesuffix(DONE).rstrip() or 'none'}" for number, reply in replies]
        return "\n".join([*parts, DONE])

    return packed


class EntityLine(NamedTuple):
    """An entity of a reply."""

    name: str
    type: str
    description: str


class SummaryLine(NamedTuple):
    """A summary entity of a reply, and the numbers of the members that it covers."""

    name: str
    type: str
    description: str
    members: Sequence[int]


DEFAULT_TYPES = ("organization", "person", "location", "event", "technology", "concept", "product")

_LISTED = re.compile(r"(?:types? to prefer|one of these types|entity types|types)\s*:\s*([^\n]+)", re.IGNORECASE)
_SAME = {
    "person": "person people human character individual 人物 人 персона человек persona personne",
    "organization": "organization organisation organizations org company institution group 组织 机构 организация",
    "location": "location place geo geography region country city 地点 位置 地理 место локация lieu ort",
    "event": "event incident activity happening 事件 событие événement ereignis",
    "technology": "technology technique method tool software system model equipment 技术 方法 технология",
    "product": "product work artifact object creation publication substance 产品 作品 продукт",
    "concept": "concept idea topic term theme category keyword subject 概念 понятие begriff",
}


def listed_types(system: str) -> list[str]:
    """Return the types that a system message lists, or the default ones."""
    match = _LISTED.search(system)
    if match is None:
        return list(DEFAULT_TYPES)
    text = re.split(r"\.\s|[.;]$|。", match.group(1))[0]
    types = [part.strip(" \"'`[](){}.") for part in re.split(r"[,，、;]", text)]
    return [kind for kind in types if kind] or list(DEFAULT_TYPES)


def type_word(kind: str, types: Sequence[str]) -> str:
    """Return the word that a prompt has for a built-in kind, of the types that it lists.

    It is the kind itself, one that means the same or nearly, or the last of the list.
    """
    canonical = next((each for each, words in _SAME.items() if kind.lower() in words.split()), "concept")
    near = {"technology": "product", "product": "technology"}.get(canonical, canonical)
    for same in (kind.lower(), *(_SAME[each] for each in (canonical, near, "concept"))):
        for name in types:
            if name.lower() in same.split():
                return name
    return types[-1]


def safe(text: str, n_chars: int = 260) -> str:
    """Return a text on one line, at most `n_chars` long, without anything that could end a record."""
    return shorten(one_line(_FORBIDDEN.sub(" ", text)), n_chars)


def safe_name(text: str) -> str:
    """Return a name as the reply's reader will read it."""
    return clean_name(safe(text, 120))


def write(
    entities: Sequence[EntityLine] | None,
    relations: Iterable[RelationRecord] | None,
    form: str | None,
    number_of: Mapping[str, int] = MappingProxyType({}),
) -> str:
    """Return a reply that holds the records; None leaves a kind of record out.

    Pairs of the same description share a record. A description that an end's entity has already is left out.

    Args:
        number_of: number of each entity, from 1, by the name that relations have it by.
    """
    descriptions = [entity.description for entity in entities or ()]
    stated: dict[str, list[list[int]]] = {}
    for one in relations or ():
        numbers = (number_of[one.source], number_of[one.target])
        ends = sorted(numbers, key=lambda end: one.description not in descriptions[end - 1 : end])
        known = bool(one.description) and one.description in descriptions[ends[0] - 1 : ends[0]]
        stated.setdefault("" if known else one.description, []).append(ends)
    if form is None:
        lines = [BAR.join((str(at), *entity)) for at, entity in enumerate(entities or (), start=1)]
        lines += [
            BAR.join((" ".join("-".join(map(str, pair)) for pair in pairs), text)) for text, pairs in stated.items()
        ]
        return "\n".join([*lines, DONE])
    data: dict[str, object] = {}
    if entities is not None:
        numbered = relations is not None
        data["entities"] = [
            {"id": at, **entity._asdict()} if numbered else entity._asdict()
            for at, entity in enumerate(entities, start=1)
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
