"""Records of replies: their fields, lenient JSON, the lines of delimited replies, and forms with a bar between fields.

JSON is read with fences, surrounding prose, trailing commas, curly quotes, or without its last brace. A record with a
bar between its fields begins with its number or its word, so that no other line is taken for one. Bullets, quotes,
emphasis and the bars around a table's row are no part of it. The last free text of a record may hold bars.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.core.prompts.templates import BAR, DONE, FIELD, FORMATS
from hirag_dist.core.text.normalize import encodable

_FENCE = re.compile(r"```(?:json[a-z]*)?[ \t]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
# A string without an end goes to the end of the text: from each of its quotes the search would begin again.
_STRING_OR_COMMA = re.compile(r'("(?:[^"\\]|\\.|\\\Z)*(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_CURLY = str.maketrans("“”„‟", '""""')
_UNIT = re.compile(r'\{\s*"unit"')
_DECODER = json.JSONDecoder(strict=False)  # a line break inside a string is plainly meant


def json_object(text: str) -> dict[str, Any] | None:
    """Return the one JSON object that a reply holds, or None where there is none, or more than one in fences.

    What is plainly meant is repaired: a fence or prose around it, trailing commas, curly quotes in place of straight
    ones, a final brace left out behind a closed array. Nothing that was cut off is completed.

    >>> json_object('Sure: {"a": [1, 2,],}')
    {'a': [1, 2]}
    """
    fenced = [found for block in _FENCE.findall(text) if (found := _loads(block)) is not None]
    if fenced:
        return fenced[0] if len(fenced) == 1 else None
    whole = _loads(text)
    if whole is not None:
        return whole
    start, end = text.find("{"), text.rfind("}")
    return _loads(text[start : end + 1]) if 0 <= start < end else None


def json_objects(text: str) -> list[dict[str, Any]]:
    """Return the complete JSON objects that stand one after another in a text; what is broken is passed over.

    >>> json_objects('{"unit": 1} and {"unit": 2, "x": [} {"unit": 3}')
    [{'unit': 1}, {'unit': 3}]
    """
    text = _clean(text)
    found: list[dict[str, Any]] = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = _DECODER.raw_decode(text, at)
            value = _storable(value, text)
        except (ValueError, RecursionError):
            match = _UNIT.search(text, at + 1)
            at = match.start() if match else -1
            continue
        found.append(value)
        at = text.find("{", end)
    return found


def scalar_text(value: object) -> str:
    """Return a value of JSON as a text; empty for null and for what holds other values."""
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""


def items_of(data: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """Return the objects of a list that an object holds under a key; none where there is no list."""
    value = data.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_of(item: Mapping[str, Any], key: str) -> str:
    """Return a value as a text, those of a list with commas between."""
    value = item.get(key)
    return ", ".join(map(scalar_text, value)) if isinstance(value, list) else scalar_text(value)


def _loads(text: str) -> dict[str, Any] | None:
    bare = text.strip()
    if not bare.startswith("{"):
        return None
    for candidate in (bare, _clean(bare), _clean(bare) + "}" if bare.endswith("]") else ""):
        if candidate:
            try:
                data = _storable(_DECODER.decode(candidate), candidate)
            except (ValueError, RecursionError):
                continue
            return data if isinstance(data, dict) else None
    return None


def _storable(data: Any, text: str) -> Any:
    """Return the data of a text without lone surrogates, which no table can hold."""
    if not _SURROGATE.search(text):
        return data
    return _DECODER.decode(encodable(json.dumps(data, ensure_ascii=False)))


def _clean(text: str) -> str:
    straight = text if '"' in text else text.translate(_CURLY)
    return _STRING_OR_COMMA.sub(lambda match: match.group(1) or "", straight)


# Runs are bounded, so that no reply makes the search quadratic.
_LINE_END = r"[ \t]{0,20}(?:\r?\n|\Z)"
_RECORD = (
    r"""[\s\-*•>\d.)(\["'`“”]{0,20}(?:entity|relation|relationship|claim|unit|answer)\b["'`“”*]{0,20}\s{0,20}"""
    + re.escape(FIELD)
)
_BREAK = re.compile(rf"\r?\n|##(?={_LINE_END}|{_RECORD})", re.IGNORECASE)


def record_lines(text: str) -> list[str]:
    """Return the lines of a delimited reply, each with one record at most.

    Some models put `##` between records, with or without a line break. It ends a record only where the next one begins
    or the line ends: in a name or a text (`C##`, a heading, a URL) it is a part of it.

    >>> record_lines("entity<|>C##<|>language<|>See ## Use.##relation<|>C##<|>D<|>Like.<|>5")
    ['entity<|>C##<|>language<|>See ## Use.', 'relation<|>C##<|>D<|>Like.<|>5']
    """
    return _BREAK.split(text)


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """An entity as the model gave it."""

    name: str
    type: str
    description: str


@dataclass(frozen=True, slots=True)
class RelationRecord:
    """A relation as the model gave it; `strength` is at least 0.1 and at most 10, or 0 where it gave none."""

    source: str
    target: str
    description: str
    strength: float


@dataclass(frozen=True, slots=True)
class ExtractionReply:
    """All records of one reply, in its order.

    Attributes:
        n_dropped: Records left out: relations by numbers of no entity, and what is beyond the longest list.
    """

    entities: tuple[EntityRecord, ...]
    relations: tuple[RelationRecord, ...]
    n_dropped: int = field(default=0, compare=False)


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
    """A community report as the model gave it; the forms ask for no rating, which is None then."""

    title: str
    summary: str
    rating: float | None
    rating_explanation: str
    findings: tuple[ReportFinding, ...]


@dataclass(frozen=True, slots=True)
class SameEntityReply:
    """Decision of the model on whether two entities are one."""

    same: bool
    reason: str


Pair = tuple[int, int]

_DRESS = r"""^[\s\-*•>|(\["'`“”#]{0,20}"""
_AFTER = r"""["'`“”*\s]{0,20}"""
_PAIR = r"\d{1,5} ?[-–—] ?\d{1,5}"
_ENTITY = re.compile(rf"{_DRESS}(?:entity{_AFTER}\|{_AFTER})?(\d{{1,5}})[.):]?{_AFTER}\|(.*)$", re.IGNORECASE)
_PAIRS = re.compile(
    rf"{_DRESS}(?:relation{_AFTER}\|{_AFTER})?({_PAIR}(?:[\s,;]{{1,3}}{_PAIR}){{0,2000}}){_AFTER}(?:\|(.*))?$",
    re.IGNORECASE,
)
_ONE_PAIR = re.compile(r"(\d{1,5}) ?[-–—] ?(\d{1,5})")
_SUMMARY = re.compile(rf"{_DRESS}entity{_AFTER}\|(.*)$", re.IGNORECASE)
_PART = re.compile(rf"{_DRESS}(title|summary|finding){_AFTER}\|(.*)$", re.IGNORECASE)
_NUMBERS = re.compile(r"[\s\[\](),;.\d\-–]*\d[\s\[\](),;.\d\-–]*")
_RANGE = re.compile(r"(\d{1,9})(?:\s?[-–]\s?(\d{1,9}))?")
_REFERENCES = re.compile(r"[\s\[\](),;.]*(?:[A-Z]\d{1,6}[\s\[\](),;.]*)*")
_REFERENCE = re.compile(r"[A-Z]\d{1,6}")
FORM_LINES = frozenset(line for form in FORMATS.values() for line in form.splitlines() if BAR in line and line != DONE)


def graph_records(lines: list[str]) -> tuple[list[tuple[int, str, str, str]], list[tuple[list[Pair], str]]]:
    """Return (number, name, type, description) of each entity of an extraction, and (pairs, text) of its relations.

    Pairs name entities by their numbers; the text is empty where the description of one of them relates the two.

    >>> graph_records(["1|Ada|person|A poet's daughter.", "1-2 1-3|Ada knew both.", "So much for 1|2."])[1]
    [([(1, 2), (1, 3)], 'Ada knew both.')]
    """
    entities: list[tuple[int, str, str, str]] = []
    relations: list[tuple[list[Pair], str]] = []
    for line in _candidates(lines):
        if match := _ENTITY.match(line):
            fields = match[2].split(BAR, 2)
            if len(fields) > 1:
                entities.append((int(match[1]), fields[0], fields[1], fields[2] if fields[2:] else ""))
        elif match := _PAIRS.match(line):
            relations.append((pairs_of(match[1]), match[2] or ""))
    return entities, relations


def pairs_of(text: str) -> list[Pair]:
    """Return the pairs of numbers that a text lists, as in `1-2 1-3`."""
    return [(int(one), int(other)) for one, other in _ONE_PAIR.findall(text)]


def summary_records(lines: list[str]) -> list[tuple[str, str, str, str]]:
    """Return (name, type, description, its members' numbers as text) of each summary entity."""
    found: list[tuple[str, str, str, str]] = []
    for line in _candidates(lines):
        match = _SUMMARY.match(line)
        fields = match[1].split(BAR) if match else []
        if len(fields) < 2:
            continue
        has_members = len(fields) > 3 and (not fields[-1].strip() or _NUMBERS.fullmatch(fields[-1]) is not None)
        members = fields.pop() if has_members else ""
        found.append((fields[0], fields[1], BAR.join(fields[2:]), members))
    return found


def numbers_of(text: str, highest: int) -> list[int]:
    """Return the numbers from 1 to `highest` that a text lists, each once, in order; `3-5` is 3, 4 and 5.

    >>> numbers_of("1, 4-6 9", 5)
    [1, 4, 5]
    """
    found: set[int] = set()
    for first, last in _RANGE.findall(text):
        found.update(range(max(int(first), 1), min(int(last or first), highest) + 1))
    return sorted(found)


def report_records(text: str) -> dict[str, object] | None:
    """Return a report as its JSON form has it, or None where a text has no such records, or those of several."""
    parts = [(match[1].lower(), match[2]) for line in _candidates(text.split("\n")) if (match := _PART.match(line))]
    once = {kind: value.strip() for kind, value in parts if kind != "finding"}
    if not parts or len(once) != sum(kind != "finding" for kind, _ in parts):
        return None
    return {**once, "findings": [_finding(value) for kind, value in parts if kind == "finding"]}


def _finding(value: str) -> dict[str, object]:
    summary, _, rest = value.partition(BAR)
    explanation, _, last = rest.rpartition(BAR)
    if not _REFERENCES.fullmatch(last):
        explanation, last = rest, ""
    return {"summary": summary.strip(), "explanation": explanation.strip(), "references": _REFERENCE.findall(last)}


def _candidates(lines: list[str]) -> list[str]:
    """Return the lines that may be records, without the last bar of a table's row."""
    stripped = (line.strip() for line in lines if FIELD not in line)
    return [line.removesuffix(BAR) if line.startswith(BAR) else line for line in stripped if line not in FORM_LINES]
