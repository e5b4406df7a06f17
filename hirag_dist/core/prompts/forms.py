"""Forms of replies in words, for endpoints without structured outputs: one record a line.

A form repeats no name that a number can stand for, and has no keys: it costs fewer tokens than JSON with the same
content (`docs/research/cost-choices.md`).
"""

from __future__ import annotations

from collections.abc import Mapping

from hirag_dist.core.prompts import answer_templates, evaluation_templates

FIELD = "<|>"  # between the fields of tasks whose texts may hold any other mark
BAR = "|"  # between the fields of the others
DONE = "<|COMPLETE|>"

_END = f"End with the line {DONE}"
_NUMBERED = f"""\
Reply with one record a line and nothing else, first the entities, numbered, then the relations:
1|name|type|description
1-2 1-3|description
{_END}"""
_DELIMITED = f"""\
Reply with one record a line and nothing else:
{{records}}
{_END}"""
_OF_UNITS = f"""\
Reply with these records for each unit, one a line, below the line with its number, and nothing else:
unit|1
{{records}}
{_END}"""
_CLAIM = FIELD.join(
    ("claim", "subject", "object", "type", "status", "first day", "last day", "description", "words of the text")
)
_SUMMARY = "entity|name|type|description|1 2 5"
_REPORT = "title|…\nsummary|…\nfinding|one sentence|explanation|E1 R2"
_SAME = f"answer{FIELD}yes or no{FIELD}reason"

FORMATS: Mapping[str, str] = {
    "extract-graph": _NUMBERED,
    "extract-entities": _DELIMITED.format(records="1|name|type|description"),
    "extract-relations": _DELIMITED.format(records="1-2 1-3|description"),
    "extract-claims": _DELIMITED.format(records=_CLAIM),
    "summarise": _DELIMITED.format(records=_SUMMARY),
    "summarise-pack": _OF_UNITS.format(records=_SUMMARY),
    "same-entity": _DELIMITED.format(records=_SAME),
    "same-entity-pack": _OF_UNITS.format(records=_SAME),
    "report": _DELIMITED.format(records=_REPORT),
    "report-pack": _OF_UNITS.format(records=_REPORT),
    **answer_templates.FORMATS,
    **evaluation_templates.FORMATS,
}
