"""Parsing of replies: JSON or delimited records to parsed records, or a refusal with its reason.

Models wrap, quote and break their records in many ways. Unambiguous deviations are repaired; a reply that
is not in the requested form is refused with its reason, never guessed. Text outside a record never becomes one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hirag_dist.core.prompts.records import (
    FORM_LINES,
    graph_records,
    items_of,
    json_object,
    numbers_of,
    pairs_of,
    record_lines,
    report_records,
    scalar_text,
    summary_records,
    text_of,
)
from hirag_dist.core.prompts.records import EntityRecord as EntityRecord
from hirag_dist.core.prompts.records import ExtractionReply as ExtractionReply
from hirag_dist.core.prompts.records import MemberLink as MemberLink
from hirag_dist.core.prompts.records import RelationRecord as RelationRecord
from hirag_dist.core.prompts.records import ReportFinding as ReportFinding
from hirag_dist.core.prompts.records import ReportRecord as ReportRecord
from hirag_dist.core.prompts.records import SameEntityReply as SameEntityReply
from hirag_dist.core.prompts.records import SummaryReply as SummaryReply
from hirag_dist.core.prompts.reply_limits import (
    DESCRIPTION_CHARS,
    EXPLANATION_CHARS,
    FINDING_CHARS,
    MAX_FINDINGS,
    MAX_ITEMS,
    RELATION_CHARS,
    REPORT_CHARS,
    SUMMARY_CHARS,
    TITLE_CHARS,
)
from hirag_dist.core.prompts.reply_validation import MalformedReply, refuse_other_language
from hirag_dist.core.prompts.reply_validation import usable_text as usable_text
from hirag_dist.core.prompts.templates import DONE, FIELD
from hirag_dist.core.text.normalize import clean_name, cut_at_sentence, encodable, is_name, name_key, one_line, shorten
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
_ECHO = "the reply quotes the form back instead of filling it in"
_TYPE_LIST = re.compile(r"\s*[|/,;]\s*|\s+or\s+")
_FILLERS = frozenset({"…", "...", "string", "title", "name", "entity_name", "summary"})  # of a form, not filled in
_YES, _NO = frozenset({"yes", "true"}), frozenset({"no", "false"})  # the form asks for them in English
_MAX_DIGITS = 9  # of a member's number
COVERED, COVER_STRENGTH = "One of its members.", 5.0  # description and strength of a member's link without its own
_EDGES = " \t\"'`“”()[]{}"


def parse_extraction(
    reply: ChatReply, read: str = "", known: Sequence[EntityRecord] = (), types: Sequence[str] = ()
) -> ExtractionReply:
    """Return the entities and relations of a reply in JSON or delimited form.

    A relation from an entity to itself, or by a number that no entity or more than one has, and a record without a
    usable name are dropped; repeated records are kept for merging to count. A relation by numbers that has no text
    is described as its first entity is. Texts are cut at the bounds of the schemas, and lists at `MAX_ITEMS`.

    Args:
        read: the text that the model read, to compare languages with; empty: they are not compared.
        known: entities that the model was shown before, numbered from 1.
        types: of entities that were asked for: of several in one field the first of them is taken.

    Raises:
        MalformedReply: the reply has no record in the requested form and does not say that there is none, or its
            descriptions are surely in another language than the text.
    """
    whole = usable_text(reply)
    text = _without_code(whole)
    data = json_object(text)
    if data is not None and ("entities" in data or "relations" in data):
        extraction = _json_extraction(data, known)
        said_none = not data.get("entities") and not data.get("relations")
    else:
        extraction = _delimited(text, known=known)
        said_none = text == DONE
    if not extraction.entities and not extraction.relations and not said_none:
        raise MalformedReply(_why_nothing(whole, text, data, "no record in the requested form"))
    extraction = _bounded(extraction, [kind.lower() for kind in types])
    described = [entity.description for entity in extraction.entities]
    refuse_other_language([*described, *(relation.description for relation in extraction.relations)], read)
    return extraction


def _bounded(found: ExtractionReply, types: Sequence[str]) -> ExtractionReply:
    """Return the records within the bounds of the schemas, with the types and names that are meant."""
    entities = [
        EntityRecord(
            entity.name, _meant_type(entity.type, types), cut_at_sentence(entity.description, DESCRIPTION_CHARS)
        )
        for entity in found.entities[:MAX_ITEMS]
    ]
    relations = [
        replace(relation, description=cut_at_sentence(relation.description, RELATION_CHARS))
        for relation in found.relations[:MAX_ITEMS]
    ]
    n_beyond = len(found.entities) - len(entities) + len(found.relations) - len(relations)
    return ExtractionReply(tuple(entities), tuple(relations), found.n_dropped + n_beyond)


def _meant_type(kind: str, types: Sequence[str]) -> str:
    """Return a type, or the first of `types` where a field lists several, as in a form that was not filled in."""
    if kind in types:
        return kind
    return next((part.strip(_EDGES) for part in _TYPE_LIST.split(kind) if part.strip(_EDGES) in types), kind)


def parse_summary(reply: ChatReply, n_members: int, member_names: Sequence[str], read: str = "") -> SummaryReply:
    """Return the summary entities of a cluster and the members that each covers.

    Args:
        read: the members' descriptions, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: no summary entity, none of the numbers or relations of the reply names a member although it has
            some, or the descriptions are surely in another language.
    """
    whole = usable_text(reply)
    text = _without_code(whole)
    data = json_object(text)
    others: tuple[EntityRecord, ...] = ()
    if data is not None and "entities" in data:
        rows = [
            (text_of(item, "name"), text_of(item, "type"), text_of(item, "description"), text_of(item, "members"))
            for item in items_of(data, "entities")
        ]
        pairs = [
            (
                text_of(item, "member"),
                text_of(item, "entity"),
                text_of(item, "description"),
                _strength(item.get("strength")),
            )
            for item in items_of(data, "relations")
        ]
    else:
        rows = summary_records(record_lines(text))
        extraction = _delimited(text, member_numbers=True)
        others = extraction.entities
        pairs = [(r.source, r.target, r.description, r.strength or 1.0) for r in extraction.relations]
    entities: list[EntityRecord] = []
    covers: dict[tuple[int, int], MemberLink] = {}
    named_members = False
    for name, kind, description, members in rows:
        found = _entity(name, kind, cut_at_sentence(one_line(description), SUMMARY_CHARS))
        if found is None:
            continue
        for number in numbers_of(members, n_members):
            covers[number - 1, len(entities)] = MemberLink(number - 1, len(entities), COVERED, COVER_STRENGTH)
        named_members |= bool(members.strip())
        entities.append(found)
    entities += others
    if not entities:
        raise MalformedReply(_why_nothing(whole, text, data, "no summary entity"))
    refuse_other_language((entity.description for entity in entities), read)
    by_name = {name_key(entity.name): place for place, entity in reversed(list(enumerate(entities)))}
    numbers = {name_key(name): number for number, name in reversed(list(enumerate(member_names)))}
    for who, summary, description, strength in pairs:
        member = _member_number(who, n_members, numbers)
        place = by_name.get(name_key(summary))
        if member is not None and place is not None:
            covers.setdefault((member, place), MemberLink(member, place, description, strength))
    if (pairs or named_members) and not covers:
        raise MalformedReply("no relation of the reply joins a member to a summary entity")
    return SummaryReply(tuple(entities), tuple(covers[key] for key in sorted(covers)))


def parse_report(reply: ChatReply, read: str = "") -> ReportRecord:
    """Return a community report.

    Args:
        read: the community's records, to compare languages with; empty: they are not compared.

    Raises:
        MalformedReply: no records of one report, or no JSON object, or more than one, with a title and a summary; or
            surely in another language.
    """
    text = usable_text(reply)
    data = json_object(text) or report_records(text)
    if data is None:
        raise MalformedReply(_ECHO if _is_form(text) else "the reply does not hold one report")
    title = shorten(text_of(data, "title"), TITLE_CHARS)
    summary = cut_at_sentence(text_of(data, "summary"), REPORT_CHARS)
    if _is_schema(data) or {title.lower(), summary.lower()} <= _FILLERS:
        raise MalformedReply(_ECHO)
    if not title or not summary:
        raise MalformedReply("the report has no title or no summary")
    findings = tuple(
        ReportFinding(
            cut_at_sentence(text_of(item, "summary"), FINDING_CHARS),
            cut_at_sentence(text_of(item, "explanation"), EXPLANATION_CHARS),
            _references(item.get("references")),
        )
        for item in items_of(data, "findings")[:MAX_FINDINGS]
        if text_of(item, "summary") or text_of(item, "explanation")
    )
    refuse_other_language([summary, *(f"{each.summary} {each.explanation}" for each in findings)], read)
    rating = min(max(_number(data["rating"], 0.0), 0.0), 10.0) if "rating" in data else None
    return ReportRecord(title, summary, rating, text_of(data, "rating_explanation"), findings)


def parse_same(reply: ChatReply) -> SameEntityReply:
    """Return whether two entities are one, and the reason.

    Raises:
        MalformedReply: no answer, or one that is neither yes nor no.
    """
    text = usable_text(reply)
    data = json_object(text)
    if data is not None and "same" in data:
        decision, reason = text_of(data, "same"), text_of(data, "reason")
    else:
        lines = [line for line in text.splitlines() if FIELD in line and line.strip() not in FORM_LINES]
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


def _why_nothing(whole: str, text: str, data: Mapping[str, Any] | None, nothing: str) -> str:
    """Return why a reply gave no record: it holds the form or its schema itself, program code, or something else."""
    if (data is not None and _is_schema(data)) or _is_form(text):
        return _ECHO
    return f"the reply holds program code, and {nothing}" if text != whole.strip() else f"the reply holds {nothing}"


def _is_form(text: str) -> bool:
    """Return whether all records of a text are lines of a form, or hold placeholders."""
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line in FORM_LINES or FIELD in line]
    return bool(lines) and all(line in FORM_LINES or _PLACEHOLDER.search(line) for line in lines)


def _is_schema(data: Mapping[str, Any]) -> bool:
    return data.get("type") == "object" and isinstance(data.get("properties"), dict)


def _without_code(text: str) -> str:
    """Return the text without fenced blocks in a programming language: what they hold is no record."""
    return _CODE.sub("", text).strip()


def _delimited(text: str, member_numbers: bool = False, known: Sequence[EntityRecord] = ()) -> ExtractionReply:
    entities: list[EntityRecord] = []
    relations: list[RelationRecord] = []
    n_dropped = 0
    lines = record_lines(text.replace(DONE, "\n"))
    for line in lines:
        fields = [part.strip() for part in line.split(FIELD)]
        kind = _KIND.match(fields[0])
        if kind is None or len(fields) < 3 or line.strip() in FORM_LINES:
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
                strength = _strength(values[-1]) if len(values) > 3 else 0.0
                relations.append(RelationRecord(source, target, one_line(values[2]), strength))
    if not member_numbers:
        numbered, stated = graph_records(lines)
        own = _without_numbers([(number, _entity(*written)) for number, *written in numbered])
        entities += [entity for _, entity in own if entity is not None]
        related, n_dropped = _related(stated, own, known)
        relations += related
    return ExtractionReply(tuple(entities), tuple(relations), n_dropped)


def _entity(name: str, kind: str, description: str) -> EntityRecord | None:
    """Return an entity, or None where it has no usable name."""
    name = clean_name(_unquote(name))
    if not is_name(name) or _PLACEHOLDER.fullmatch(name):
        return None
    return EntityRecord(name, _type(kind), one_line(_unquote(description)))


def _related(
    stated: Iterable[tuple[Sequence[tuple[int, int]], str]],
    own: Iterable[tuple[int, EntityRecord | None]],
    known: Sequence[EntityRecord],
) -> tuple[list[RelationRecord], int]:
    """Return the relations of pairs of numbers, of which an entity may have one of its own, and how many have none."""
    by_number: dict[int, EntityRecord | None] = dict(enumerate(known, start=1))
    for number, entity in own:
        by_number[number] = None if number in by_number else entity
    found: list[RelationRecord] = []
    n_dropped = 0
    for pairs, text in stated:
        description = one_line(_unquote(text))
        for pair in pairs:
            one, other = (by_number.get(number) for number in pair)
            if one is None or other is None:
                n_dropped += 1
            elif name_key(one.name) != name_key(other.name):
                told = description or one.description or other.description
                found.append(RelationRecord(one.name, other.name, told, 0.0))
    return found, n_dropped


def _without_numbers(own: list[tuple[int, EntityRecord | None]]) -> list[tuple[int, EntityRecord | None]]:
    """Return numbered entities without their numbers in their names, where all names have them: a club is 1. FC."""
    entities = [(number, entity) for number, entity in own if entity is not None]
    bare = [re.sub(rf"^{number}\s?[.):]\s+", "", entity.name) for number, entity in entities]
    if len(bare) < 2 or any(name == entity.name for name, (_, entity) in zip(bare, entities, strict=True)):
        return own
    return [(number, replace(entity, name=name)) for name, (number, entity) in zip(bare, entities, strict=True)]


def _unquote(text: str) -> str:
    stripped = text.strip()
    if stripped.count("(") < stripped.count(")"):
        stripped = stripped.removesuffix(")").rstrip()
    if len(stripped) > 1 and stripped[0] in "\"'“`" and stripped[-1] in "\"'”`":
        stripped = stripped[1:-1]
    return stripped


def _json_extraction(data: Mapping[str, Any], known: Sequence[EntityRecord]) -> ExtractionReply:
    own: list[tuple[int, EntityRecord | None]] = []
    for at, item in enumerate(items_of(data, "entities"), start=len(known) + 1):
        number = _whole(item.get("id"))
        entity = _entity(text_of(item, "name"), text_of(item, "type"), text_of(item, "description"))
        own.append((int(number) if number else at, entity))
    own = _without_numbers(own)
    number_of = {name_key(entity.name): number for number, entity in reversed(own) if entity is not None}
    relations: list[RelationRecord] = []
    n_dropped = 0
    for item in items_of(data, "relations"):
        if "pairs" in item:
            pairs = _pairs(item["pairs"], number_of)
            related, n_unknown = _related([(pairs, text_of(item, "description"))], own, known)
            relations += related
            n_dropped += n_unknown
            continue
        source, target = clean_name(text_of(item, "source")), clean_name(text_of(item, "target"))
        if is_name(source) and is_name(target) and name_key(source) != name_key(target):
            strength = 0.0 if item.get("strength") is None else _strength(item["strength"])
            relations.append(RelationRecord(source, target, one_line(text_of(item, "description")), strength))
    return ExtractionReply(tuple(entity for _, entity in own if entity is not None), tuple(relations), n_dropped)


def _pairs(value: object, number_of: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return pairs of numbers, from a list of pairs, one pair, a list of texts, or one text.

    Args:
        value: as the reply has it; a pair may hold names in place of numbers.
        number_of: key of a name → number of its entity.
    """
    if not isinstance(value, list):
        return pairs_of(scalar_text(value))

    def number(end: object) -> str:
        return _whole(end) or str(number_of.get(name_key(scalar_text(end)), ""))

    written = [value] if len(value) == 2 and all(map(number, value)) else value
    return pairs_of(
        " ".join(
            "-".join(map(number, each)) if isinstance(each, list) and len(each) == 2 else scalar_text(each)
            for each in written
        )
    )


def _whole(value: object) -> str:
    """Return a whole number as text, also where it was written as a text or as 3.0; an empty text for anything else."""
    text = scalar_text(value).removesuffix(".0")
    return text if text.isdecimal() and len(text) <= _MAX_DIGITS else ""


def _references(value: object) -> tuple[str, ...]:
    """Return the references of a finding, from a list or a text of them."""
    written = " ".join(map(scalar_text, value)) if isinstance(value, list) else scalar_text(value)
    return tuple(found for each in re.split(r"[\s,;]+", written) if (found := each.strip("[]() ")))


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
