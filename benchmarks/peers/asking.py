"""Prompts of other packages, recognised by the fixed words around their data, and what they ask read out of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hirag_dist.types import Message

_TUPLES = re.compile(r'\("(entity|relationship)"(\S+?)<')
_LIST_DELIMITER = re.compile(r"Use \*\*(\S+?)\*\* as the list delimiter")
_DONE = re.compile(r"output (<\|\w+\|>)")
_TUPLE_TYPES = re.compile(r"^Entity_types:[ \t]*(.*)$", re.MULTILINE)
_TUPLE_TEXT = re.compile(r"^Text:[ \t]*\n?(.*)\n#{6,}", re.DOTALL | re.MULTILINE)
_CLUSTER = re.compile(r"Meta attribute list: (.*?)\nEntity description list: (.*?)\n#{6,}", re.DOTALL)
_PAIR = re.compile(r"""\(\s*(['"])(.*?)\1\s*,\s*(['"])(.*?)\3\s*\)""", re.DOTALL)
_ROW = re.compile(r"`entity(\S+?)entity_name\1")
_ROW_TEXT = re.compile(r"---Input Text---\s*```\n(.*)\n```\s*---Output---", re.DOTALL)
_ROW_TYPES = re.compile(r"^- (\w+): ", re.MULTILINE)
_OBJECT_TEXT = re.compile(r"<<DOCUMENT_START>>\s*\*\*Document\*\*:\n(.*)\n<<DOCUMENT_END>>", re.DOTALL)
_OBJECT_TYPES = re.compile(r"\*\*Entity Types\*\*:\n(.*)\n<<ENTITY_TYPES_END>>")
_CSV = re.compile(
    r"(?:-----)?(Entities|Relationships|Reports)(?:-----)?\n+(?:```csv\n)?(.*?)(?=```|\n\n+[A-Z-]|\Z)", re.DOTALL
)
_MORE_EXTRACTION = ("MANY entities", "---Task---\nBased on the last extraction task")


@dataclass(frozen=True, slots=True)
class Extraction:
    """Entities and relations of a text are asked for.

    Attributes:
        kinds: of records that the prompt describes: entity, relationship.
        types: of entities that the prompt names.
        form: "tuples" in brackets, "rows" or an "object" in JSON.
        field, record, done: delimiters of tuples and rows.
        round: how often what was missed has been asked for.
    """

    text: str
    types: tuple[str, ...]
    form: str
    kinds: frozenset[str] = frozenset({"entity", "relationship"})
    field: str = "<|>"
    record: str = "##"
    done: str = "<|COMPLETE|>"
    round: int = 0


@dataclass(frozen=True, slots=True)
class Cluster:
    """Summary entities of members, (name, description) each, are asked for, of the types given; `tuples` say how."""

    members: tuple[tuple[str, str], ...]
    types: tuple[str, ...]
    tuples: Extraction


@dataclass(frozen=True, slots=True)
class Description:
    """One description of several is asked for; as JSON where `as_object`."""

    name: str
    descriptions: tuple[str, ...]
    as_object: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A community's report is asked for, from rows of (name, type, text) and of (source, target, text)."""

    entities: tuple[tuple[str, str, str], ...]
    relations: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Keywords:
    """The words of a question are asked for, under two names: of names, and of what it is about."""

    question: str
    names: str
    themes: str


@dataclass(frozen=True, slots=True)
class Question:
    """An answer from a context is asked for; as JSON where `as_object`."""

    question: str
    context: str
    as_object: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """The reply is a word that ends a loop: nothing was missed, nothing is to be merged."""

    text: str


Wanted = Extraction | Cluster | Description | Report | Keywords | Question | Fixed


def wanted(messages: Sequence[Message]) -> Wanted | None:
    """Return the request in a conversation of another package, or None if it is not recognised."""
    system = "\n".join(each.content for each in messages if each.role == "system")
    asked = [each.content for each in messages if each.role == "user"]
    if not asked:
        return None
    first, last = asked[0], asked[-1]
    if len(asked) > 1 and not last.startswith(_MORE_EXTRACTION):
        return _loop_word(last)
    rounds = len(asked) - 1
    return (
        _extraction(system, first, rounds)
        or _description(last)
        or _report(last)
        or _keywords(last)
        or _question(system, last)
    )


def _loop_word(last: str) -> Fixed | None:
    if "YES | NO" in last:
        return Fixed("NO")
    if "letter Y or N" in last:
        return Fixed("N")
    return None


def _extraction(system: str, first: str, rounds: int) -> Extraction | Cluster | None:
    if "---Input Text---" in first:
        text, field = _ROW_TEXT.search(first), _ROW.search(system)
        if text is None or field is None:
            return None
        return Extraction(text[1], tuple(_ROW_TYPES.findall(system)), "rows", field=field[1], round=rounds)
    found = _OBJECT_TEXT.search(first)
    if found:
        types = _OBJECT_TYPES.search(first)
        return Extraction(found[1], _split(types[1] if types else ""), "object", round=rounds)
    return _tuples(first, rounds)


def _tuples(first: str, rounds: int) -> Extraction | Cluster | None:
    head, _, data = first.rpartition("-Real Data-")
    shapes, text, cluster = _TUPLES.findall(head), _TUPLE_TEXT.search(data), _CLUSTER.search(data)
    if not shapes or (text is None and cluster is None):
        return None
    types, record, done = _TUPLE_TYPES.search(data), _LIST_DELIMITER.search(head), _DONE.search(head)
    found = Extraction(
        text[1] if text else "",
        _split(types[1] if types else ""),
        "tuples",
        kinds=frozenset(kind for kind, _ in shapes),
        field=shapes[0][1],
        record=record[1] if record else "##",
        done=done[1] if done else "<|COMPLETE|>",
        round=rounds,
    )
    if cluster is None:
        return found
    members = tuple((pair[1], pair[3]) for pair in _PAIR.findall(cluster[2]))
    return Cluster(members, tuple(each.strip("'\"") for each in _split(cluster[1])), found)


def _split(types: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in types.strip("[] ").split(",") if each.strip())


def _description(last: str) -> Description | None:
    old = re.search(r"Entities: (.*)\nDescription List: (.*)\n#{4,}", last, re.DOTALL)
    if old:
        return Description(old[1], _listed(old[2]))
    rows = re.search(r"---Input---\n\w+ Name: (.*?)\n\nDescription List:\s*```\n(.*)\n```", last, re.DOTALL)
    if rows:
        return Description(rows[1], tuple(re.findall(r'"Description":\s*"(.*)"\s*}', rows[2])))
    one = re.search(r"Given the current description, summarize.*?\nCurrent:\n(.*)\nUpdated:", last, re.DOTALL)
    if one:
        return Description("", tuple(filter(None, map(str.strip, one[1].split("\n")))), as_object=True)
    return None


def _listed(text: str) -> tuple[str, ...]:
    """Return the texts of a list that was written by Python."""
    return tuple(filter(None, re.split(r"""^\[['"]|['"], ['"]|['"]\]$""", text.strip())))


def _report(last: str) -> Report | None:
    if "Write a comprehensive report of a community" not in last:
        return None
    data = last.rpartition("# Real Data")[2].partition("The report should include the following sections")[0]
    entities: list[tuple[str, str, str]] = []
    relations: list[tuple[str, str, str]] = []
    for title, rows in _CSV.findall(data):
        for row in _rows(rows):
            if title == "Entities":
                name = row.get("entity") or row.get("title") or ""
                entities.append((name, row.get("type") or "", row.get("description") or ""))
            elif title == "Relationships":
                relations.append((row.get("source") or "", row.get("target") or "", row.get("description") or ""))
    return Report(tuple(entities), tuple(relations))


def _rows(text: str) -> list[dict[str, str]]:
    """Return rows of CSV under their header; a tab may stand behind a comma."""
    lines = csv.reader(io.StringIO(text.strip().replace(",\t", ",")))
    table = [[field.strip() for field in line] for line in lines if line]
    return [dict(zip(table[0], line, strict=False)) for line in table[1:]]


def _keywords(last: str) -> Keywords | None:
    if '"high_level_keywords"' in last:
        question = re.search(r"User Query: (.*)\n\n---Output---", last, re.DOTALL)
        return Keywords(question[1], "low_level_keywords", "high_level_keywords") if question else None
    if last.startswith("Given the query below, your task is to extract all entities"):
        question = re.search(r"-INPUT-\nQuery: (.*)\nOutput:", last, re.DOTALL)
        return Keywords(question[1], "named", "generic") if question else None
    return None


def _question(system: str, last: str) -> Question | Fixed | None:
    inside = re.search(r"# INPUT DATA\n(.*)\n# USER QUERY\n(.*?)\n# INSTRUCTIONS", last, re.DOTALL)
    if inside:
        return Question(inside[2].strip(), inside[1], as_object=True)
    if "grouped_facts" in last:
        return Fixed('{"grouped_facts": []}')
    for mark in ("---Data tables---", "---Context---"):
        if mark in system:
            return Question(last, system.partition(mark)[2].partition("---Goal---")[0])
    return None
