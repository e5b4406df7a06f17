"""The built-in model for prompts of other packages, with replies in the form that each prompt asks for.

Each package brings its own prompts. They are read by `asking.py`; the built-in model gets them as prompts of
hirag_dist, so that the same text yields the same entities and relations for every package; and its reply is written in
the form that the package parses. Prompts of hirag-dist go to the model as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks.peers.asking import Cluster, Description, Extraction, Fixed, Keywords, Question, Report, Wanted, wanted
from hirag_dist.core.entities.association import with_strengths
from hirag_dist.core.prompts.reply_parsing import EntityRecord, parse_extraction, parse_summary
from hirag_dist.core.prompts.requests import answer_request
from hirag_dist.core.prompts.templates import (
    Prompts,
    describe_request,
    extraction_request,
    gleaning_request,
    report_request,
    summary_request,
)
from hirag_dist.core.reports.material import community_rating
from hirag_dist.errors import RequestRejected
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.testing.simulator.openai_schema import instance_of
from hirag_dist.types import ChatReply, Message

_PROMPTS = Prompts()
_FORM = "extract-graph"
_MAX_WORDS = 200  # of a description
_MAX_LINES = 400  # of a context that is searched for an answer
_TYPES = ("organization", "person", "location", "event", "technology", "concept", "product")


def reply(messages: Sequence[Message], form: str | None) -> str:
    """Return the reply to a conversation of any of the packages.

    Raises:
        RequestRejected: none of the known prompts: the caller gets a 400, and the benchmark sees it.
    """
    if messages[0].content.lstrip().startswith("Task:"):
        return reply_to(messages, form)
    asked = wanted(messages)
    if asked is None:
        start = messages[-1].content.strip()[:80]
        raise RequestRejected(f"no package in the comparison is known to ask {start!r}; add it to asking.py")
    return _reply(asked)


def structured(messages: Sequence[Message], schema: Mapping[str, Any]) -> str:
    """Return the reply where a JSON schema came along: prompts that bring one name its fields themselves.

    To other words the reply is the smallest that the schema allows, as `simulate-llm` gives it to probes.
    """
    asked = wanted(messages)
    return _json(instance_of(schema)) if asked is None else _reply(asked)


def _reply(asked: Wanted) -> str:
    match asked:
        case Extraction():
            return _extracted(asked)
        case Cluster():
            return _summarised(asked)
        case Description():
            request = describe_request(asked.name, "unknown", asked.descriptions, _PROMPTS, _MAX_WORDS)
            text = reply_to(request.messages, None)
            return _json({"description": text}) if asked.as_object else text
        case Report():
            return _report(asked)
        case Keywords():
            return _keywords(asked)
        case Question():
            lines = [line.strip() for line in asked.context.split("\n") if len(line.strip()) > 1][:_MAX_LINES]
            context = "\n".join(f"[S{number}] {line}" for number, line in enumerate(lines, 1))
            text = reply_to(answer_request(asked.question, context, _PROMPTS).messages, None)
            return _json({"answer": text}) if asked.as_object else text
        case Fixed():
            return asked.text


def _extracted(asked: Extraction) -> str:
    request = extraction_request(_FORM, asked.text, _PROMPTS, asked.types or _TYPES, _FORM)
    known: list[EntityRecord] = []
    for _ in range(asked.round):
        said = reply_to(request.messages, _FORM)
        known += parse_extraction(ChatReply(said), "", known).entities
        request = gleaning_request(request, said)
    read = parse_extraction(ChatReply(reply_to(request.messages, _FORM)), "", known)
    found = with_strengths(read, asked.text)
    entities, relations = ([asdict(each) for each in some] for some in (found.entities, found.relations))
    if asked.form == "object":
        return _json(
            {
                "entities": [
                    {"name": each["name"], "type": each["type"], "desc": each["description"]} for each in entities
                ],
                "relationships": [
                    {"source": each["source"], "target": each["target"], "desc": each["description"]}
                    for each in relations
                ],
                "other_relationships": [],
            }
        )
    rows = [["entity", each["name"], each["type"], each["description"]] for each in entities]
    if asked.form == "rows":
        rows += [
            ["relation", each["source"], each["target"], _theme(each["description"]), each["description"]]
            for each in relations
        ]
        return "\n".join([*(asked.field.join(row) for row in rows), asked.done])
    rows += [
        ["relationship", each["source"], each["target"], each["description"], f"{each['strength']:g}"]
        for each in relations
    ]
    return _tuples([row for row in rows if row[0] in asked.kinds], asked)


def _summarised(asked: Cluster) -> str:
    members = [(name, "unknown", text) for name, text in asked.members]
    request = summary_request(members, _PROMPTS, asked.types or _TYPES, "summarise")
    names = [name for name, _ in asked.members]
    found = parse_summary(ChatReply(reply_to(request.messages, "summarise")), len(names), names)
    rows = [["entity", each.name, each.type, each.description] for each in found.entities]
    rows += [
        ["relationship", names[each.member], found.entities[each.entity].name, each.description, f"{each.strength:g}"]
        for each in found.covers
    ]
    return _tuples(rows, asked.tuples)


def _tuples(rows: Sequence[Sequence[str]], asked: Extraction) -> str:
    written = (asked.field.join([f'"{row[0]}"', *row[1:]]) for row in rows)
    return f"{asked.record}\n".join(f"({row})" for row in written) + asked.done


def _theme(description: str) -> str:
    """Return a keyword for a relation, which the built-in model has none of: the longest word of its description."""
    return max((word.strip(".,;:!?()'\"") for word in description.split()), key=len, default="") or "related"


def _report(asked: Report) -> str:
    request = report_request(
        [f"E{at}. {name} ({kind}): {text}" for at, (name, kind, text) in enumerate(asked.entities, 1)],
        [f"R{at}. {source} — {target}: {text}" for at, (source, target, text) in enumerate(asked.relations, 1)],
        [],
        _PROMPTS,
        "report",
    )
    found = json.loads(reply_to(request.messages, "report"))
    for finding in found["findings"]:
        del finding["references"]
    n_entities, n_relations = len(asked.entities), len(asked.relations)
    rating = community_rating(n_entities, n_relations, 0)
    return _json(found | {"rating": rating, "rating_explanation": f"{n_entities} entities, {n_relations} relations."})


def _keywords(asked: Keywords) -> str:
    """Names and terms as the model finds them in the question; where it finds none, the question itself."""
    request = extraction_request("extract-entities", asked.question, _PROMPTS, _TYPES, "extract-entities")
    found = json.loads(reply_to(request.messages, "extract-entities"))["entities"]
    names = [each["name"] for each in found]
    return _json({asked.names: names or [asked.question], asked.themes: [asked.question]})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
