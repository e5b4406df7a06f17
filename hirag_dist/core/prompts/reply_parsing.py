"""Parsing of replies: JSON or delimited records to parsed records, or a refusal with its reason.

Models wrap, quote and break their records in many ways. Unambiguous deviations are repaired; a reply that
is not in the requested form is refused with its reason, never guessed. Text outside a record never becomes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.prompts.lenient_json import json_object, scalar_text
from hirag_dist.core.prompts.record_lines import record_lines
from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.prompts.reply_validation import usable_text as usable_text
from hirag_dist.core.prompts.templates import DONE, FIELD, FORMATS
from hirag_dist.core.text.language_check import other_language
from hirag_dist.core.text.normalize import clean_name, encodable, is_name, name_key, one_line
from hirag_dist.types import ChatReply

_KIND = re.compile(
    r"""^[\s\-*•>]{0,20}(?:\d{1,9}[.)])?[\s\-*•>(\["'`“”]{0,20}(entity|relation|relationship)\b["'`“”*]*\s*$""",
    re.IGNORECASE,
)
_LANGUAGES = (
    "python|python3|py|bash|sh|shell|console|javascript|js|typescript|ts|java|kotlin|scala|c|cpp|csharp|cs|go|golang"
    "|rust|ruby|rb|php|perl|r|sql|swift|lua|matlab|julia|powershell|html|css"
)
_CODE = re.compile(
    rf"^[ \t]*(```+|~~~+)[ \t]*(?:{_LANGUAGES})\b[^\n]*(?:\n.*?(?:^[ \t]*\1[ \t]*$|\Z)|\Z)",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"<[^\W_]*_\w*>|\{[^{}]*\}")  # in a form or a template that was quoted back
_FORM_LINES = frozenset(line for form in FORMATS.values() for line in form.splitlines() if FIELD in line)
_ECHO = "the reply quotes the form back instead of filling it in"
_FILLERS = frozenset({"…", "...", "string", "title", "name", "entity_name", "summary"})  # of a form, not filled in
_YES, _NO = frozenset({"yes", "true"}), frozenset({"no", "false"})  # the form asks for them in English
_MAX_DIGITS = 9  # of a member's number
_EDGES = " \t\"'`“”()[]{}"


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """An entity as the model gave it."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A relation as the model gave it; `strength` is at least 0.1 and at most 10."""

    source: str
    target: str
    description: str
    strength: float


@dataclass(frozen=True, slots=True)
class ExtractionReply:
    """All records of one reply, in its order."""

    entities: tuple[EntityRecord, ...]
    relations: tuple[RelationRecord, ...]


@dataclass(frozen=True, slots=True)
class MemberLink:
    """A member (its number, from 0) covered by a summary entity (its place in `entities`)."""

    member: int
    entity: int
    description: str
    strength: float


@dataclass(frozen=True, slots=True)
class SummaryReply:
    """The summary entities of a cluster and which member each covers."""

    entities: tuple[EntityRecord, ...]
    covers: tuple[MemberLink, ...]


@dataclass(frozen=True, slots=True)
class ReportFinding:
    """One finding of a report, with the references as they were written."""

    summary: str
    explanation: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """A community report as the model gave it."""

    title: str
    summary: str
    rating: float
    rating_explanation: str
    findings: tuple[ReportFinding, ...]


@dataclass(frozen=True, slots=True)
class SameEntityReply:
    """Decision of the model on whether two entities are one."""

    same: bool
    reason: str


def parse_extraction(reply: ChatReply, read: str = "") -> ExtractionReply:
    """Return the entities and relations of a reply in JSON or delimited form.

    A relation from an entity to itself, and a record without a usable name, is dropped; repeated records are kept
    for merging to count.

    Args:
        read: the text that the model read, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: the reply has no record in the requested form and does not say that there is none, or its
            descriptions are surely in another language than the text.
    """
    whole = usable_text(reply)
    text = _without_code(whole)
    data = json_object(text)
    if data is not None and ("entities" in data or "relations" in data):
        extraction = ExtractionReply(_json_entities(data), _json_relations(data))
        said_none = not data.get("entities") and not data.get("relations")
    else:
        extraction = _delimited(text)
        said_none = text == DONE
    if not extraction.entities and not extraction.relations and not said_none:
        raise MalformedReply(_why_nothing(whole, text, data, "no record in the requested form"))
    _check_language([*extraction.entities, *extraction.relations], read)
    return extraction


def parse_summary(reply: ChatReply, n_members: int, member_names: Sequence[str], read: str = "") -> SummaryReply:
    """Return the summary entities of a cluster and the members that each covers.

    Args:
        read: the members' descriptions, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: no summary entity, none of the reply's relations names a member and a summary entity although it
            has relations, or the descriptions are surely in another language.
    """
    whole = usable_text(reply)
    text = _without_code(whole)
    data = json_object(text)
    if data is not None and "entities" in data:
        entities = _json_entities(data)
        pairs = [
            (
                _text(item, "member"),
                _text(item, "entity"),
                _text(item, "description"),
                _strength(item.get("strength")),
            )
            for item in _items(data, "relations")
        ]
    else:
        extraction = _delimited(text, member_numbers=True)
        entities = extraction.entities
        pairs = [(r.source, r.target, r.description, r.strength) for r in extraction.relations]
    if not entities:
        raise MalformedReply(_why_nothing(whole, text, data, "no summary entity"))
    _check_language(entities, read)
    by_name = {name_key(entity.name): place for place, entity in reversed(list(enumerate(entities)))}
    members = {name_key(name): number for number, name in reversed(list(enumerate(member_names)))}
    covers: dict[tuple[int, int], MemberLink] = {}
    for who, summary, description, strength in pairs:
        member = _member_number(who, n_members, members)
        place = by_name.get(name_key(summary))
        if member is not None and place is not None:
            covers.setdefault((member, place), MemberLink(member, place, description, strength))
    if pairs and not covers:
        raise MalformedReply("no relation of the reply joins a member to a summary entity")
    return SummaryReply(entities, tuple(covers[key] for key in sorted(covers)))


def parse_report(reply: ChatReply, read: str = "") -> ReportRecord:
    """Return a community report.

    Args:
        read: the community's records, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: no JSON object, or more than one, with a title and a summary; or surely in another language.
    """
    data = json_object(usable_text(reply))
    if data is None:
        raise MalformedReply("the reply does not hold one JSON object")
    title, summary = _text(data, "title"), _text(data, "summary")
    if _is_schema(data) or {title.lower(), summary.lower()} <= _FILLERS:
        raise MalformedReply(_ECHO)
    if not title or not summary:
        raise MalformedReply("the report has no title or no summary")
    findings = tuple(
        ReportFinding(
            _text(item, "summary"),
            _text(item, "explanation"),
            tuple(scalar_text(reference).strip("[] ") for reference in _list(item.get("references"))),
        )
        for item in _items(data, "findings")
        if _text(item, "summary") or _text(item, "explanation")
    )
    _refuse_other_language([summary, *(f"{each.summary} {each.explanation}" for each in findings)], read)
    rating = min(max(_number(data.get("rating"), 0.0), 0.0), 10.0)
    return ReportRecord(title, summary, rating, _text(data, "rating_explanation"), findings)


def parse_same(reply: ChatReply) -> SameEntityReply:
    """Return whether two entities are one, and the reason.

    Raises:
        MalformedReply: no answer, or one that is neither yes nor no.
    """
    text = usable_text(reply)
    data = json_object(text)
    if data is not None and "same" in data:
        decision, reason = _text(data, "same"), _text(data, "reason")
    else:
        lines = [line for line in text.splitlines() if FIELD in line and line.strip() not in _FORM_LINES]
        fields = [part.strip(_EDGES) for part in lines[0].split(FIELD)] if len(lines) == 1 else []
        if len(fields) < 2 or fields[0].lower().lstrip("-*• ") != "answer":
            raise MalformedReply("the reply does not hold one answer in the requested form")
        decision, reason = fields[1], fields[2] if len(fields) > 2 else ""
    word = decision.casefold().rstrip(".")
    if word not in _YES | _NO:
        raise MalformedReply(f"the answer is neither yes nor no: {decision[:60]}")
    return SameEntityReply(word in _YES, one_line(reason))


def parse_meta_types(reply: ChatReply) -> tuple[str, ...]:
    """Return three to twelve distinct kinds in lower case, from a list with one a line or with commas between.

    Raises:
        MalformedReply: fewer, or what is there is sentences rather than kinds.
    """
    named = dict.fromkeys(_type(kind) for kind in _listed(usable_text(reply)))
    named.pop("unknown", None)
    kinds = [kind for kind in named if len(kind) <= 40 and len(kind.split()) <= 3 and is_name(kind)]
    if len(kinds) < 3 or 2 * len(kinds) <= len(named):
        raise MalformedReply("the reply holds no list of kinds, one or two words a line")
    return tuple(kinds[:12])


def _listed(text: str) -> list[str]:
    """Return the items of a JSON array, alone or as the only one of an object, or of a list in plain text."""
    try:
        data = json.loads(re.sub(r"^\s*```\w*|```\s*$", "", text))
    except (ValueError, RecursionError):
        data = None
    if isinstance(data, dict) and len(data) == 1:
        (data,) = data.values()
    if isinstance(data, list):
        return [encodable(item) for item in data if isinstance(item, str)]
    lines = [line for line in text.replace("*", "").splitlines() if not line.rstrip().endswith((":", "```"))]
    parts = [part.partition(":")[0] for line in lines for part in re.split("[,;]", line)]
    return [re.sub(r"^\s*(?:[-•]|\d+[.)])\s*", "", part) for part in parts if part.strip()]


def parse_text(reply: ChatReply) -> str:
    """Return the reply as plain text. Raises MalformedReply as `usable_text` does."""
    return usable_text(reply)


def _check_language(records: Iterable[EntityRecord | RelationRecord], read: str) -> None:
    _refuse_other_language((record.description for record in records), read)


def _refuse_other_language(written: Iterable[str], read: str) -> None:
    difference = other_language(written, read) if read else ""
    if difference:
        raise MalformedReply(f"{difference}; descriptions stay in the language of the text")


def _why_nothing(whole: str, text: str, data: Mapping[str, Any] | None, nothing: str) -> str:
    """Return why a reply gave no record: it holds the form or its schema itself, program code, or something else."""
    lines = [line for line in text.splitlines() if FIELD in line]
    quoted = [line for line in lines if line.strip() in _FORM_LINES or _PLACEHOLDER.search(line)]
    if (data is not None and _is_schema(data)) or (lines and len(quoted) == len(lines)):
        return _ECHO
    return f"the reply holds program code, and {nothing}" if text != whole.strip() else f"the reply holds {nothing}"


def _is_schema(data: Mapping[str, Any]) -> bool:
    return data.get("type") == "object" and isinstance(data.get("properties"), dict)


def _without_code(text: str) -> str:
    """Return the text without fenced blocks in a programming language: what they hold is no record."""
    return _CODE.sub("", text).strip()


def _delimited(text: str, member_numbers: bool = False) -> ExtractionReply:
    entities: list[EntityRecord] = []
    relations: list[RelationRecord] = []
    for line in record_lines(text.replace(DONE, "\n")):
        fields = [part.strip() for part in line.split(FIELD)]
        kind = _KIND.match(fields[0])
        if kind is None or len(fields) < 3 or line.strip() in _FORM_LINES:
            continue
        values = [_unquote(part) for part in fields[1:]]
        if any(_PLACEHOLDER.fullmatch(value) for value in values[:2]):
            continue
        if kind.group(1).lower() == "entity":
            name = clean_name(values[0])
            if is_name(name):
                description = one_line(values[2]) if len(values) > 2 else ""
                entities.append(EntityRecord(name, _type(values[1]), description))
        elif len(values) >= 3:
            source, target = clean_name(values[0]), clean_name(values[1])
            usable = is_name(source) and is_name(target)
            if usable and (member_numbers or name_key(source) != name_key(target)):
                strength = _strength(values[-1]) if len(values) > 3 else 1.0
                relations.append(RelationRecord(source, target, one_line(values[2]), strength))
    return ExtractionReply(tuple(entities), tuple(relations))


def _unquote(text: str) -> str:
    stripped = text.strip()
    if stripped.count("(") < stripped.count(")"):
        stripped = stripped.removesuffix(")").rstrip()
    if len(stripped) > 1 and stripped[0] in "\"'“`" and stripped[-1] in "\"'”`":
        stripped = stripped[1:-1]
    return stripped


def _json_entities(data: Mapping[str, Any]) -> tuple[EntityRecord, ...]:
    records = (
        EntityRecord(clean_name(_text(item, "name")), _type(_text(item, "type")), one_line(_text(item, "description")))
        for item in _items(data, "entities")
    )
    return tuple(record for record in records if is_name(record.name))


def _json_relations(data: Mapping[str, Any]) -> tuple[RelationRecord, ...]:
    records = (
        RelationRecord(
            clean_name(_text(item, "source")),
            clean_name(_text(item, "target")),
            one_line(_text(item, "description")),
            _strength(item.get("strength")),
        )
        for item in _items(data, "relations")
    )
    return tuple(
        record
        for record in records
        if is_name(record.source) and is_name(record.target) and name_key(record.source) != name_key(record.target)
    )


def _items(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    return [item for item in _list(data.get(key)) if isinstance(item, dict)]


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(item: Mapping[str, Any], key: str) -> str:
    value = item.get(key)
    return ", ".join(map(scalar_text, value)) if isinstance(value, list) else scalar_text(value)


def _type(text: str) -> str:
    return one_line(text).strip(_EDGES + ".,;:").lower()[:60] or "unknown"


def _number(value: object, default: float) -> float:
    try:
        number = float(scalar_text(value).strip(_EDGES + ".,;"))
    except (ValueError, OverflowError):
        return default
    return number if number == number else default


def _strength(value: object) -> float:
    return min(max(_number(value, 1.0), 0.1), 10.0)


def _member_number(who: str, n_members: int, names: Mapping[str, int]) -> int | None:
    written = who.strip().rstrip(".")
    if written.isdecimal() and len(written) <= _MAX_DIGITS and 1 <= int(written) <= n_members:
        return int(written) - 1
    return names.get(name_key(written))
