"""JSON schemas of replies for strict structured outputs: every property is required, and no others are allowed.

Every text, list and number is bounded, so that a reply ends whatever a model does: one that repeats itself is stopped
by the schema and not by the token limit. The bounds are above everything that was good in the recorded replies of
gpt-3.5-turbo, gpt-4o, gpt-4o-mini and Llama 3.1 8B (6,219 entities and 2,802 relations of 567 replies, 922 findings of
161 reports, 190 claims) and in 12,872 descriptions of LightRAG's recorded graph of Mix.
"""

from __future__ import annotations

from typing import Any, Final

NAME_CHARS: Final = 160  # 99.9 % have 87 or fewer, the longest 146
TYPE_CHARS: Final = 60  # 99.9 % of entities have 15 or fewer; of claims, the longest has 46
DESCRIPTION_CHARS: Final = 500  # of an entity: 99.9 % have 307 or fewer, the longest 489
RELATION_CHARS: Final = 300  # 99.9 % have 196 or fewer, the longest 206
CLAIM_CHARS: Final = 600  # the longest has 329
QUOTE_CHARS: Final = 1200  # of the text that states a claim: 99 % have 1,149 or fewer
SUMMARY_CHARS: Final = 800  # of a summary entity, in up to three sentences
TITLE_CHARS: Final = 200  # of a report: the longest has 87
REPORT_CHARS: Final = 1200  # of a report's summary: the longest has 951
FINDING_CHARS: Final = 250  # of a finding's sentence: the longest has 93
EXPLANATION_CHARS: Final = 1200  # of a finding: the longest has 916
POINT_CHARS: Final = 1000  # of a point of an answer, in one to three sentences
REASON_CHARS: Final = 300
MAX_FINDINGS: Final = 10  # the most that a report has
MAX_SUMMARIES: Final = 5  # of a cluster; one to three are asked for
MAX_PAIRS: Final = 30  # that one sentence relates
MAX_POINTS: Final = 30
MAX_ITEMS: Final = 256  # entities, relations or claims of a chunk; the longest recorded list, a loop, has 201
MAX_MEMBERS: Final = 1024  # of a cluster
OTHER: Final = "other"  # type of an entity that none of the configured ones fits

_NUMBER: Final = 9999  # the highest of an entity or a member
_REFERENCE_CHARS, _MAX_REFERENCES = 8, 30
_DATE_CHARS = 32


def text_schema(max_chars: int) -> dict[str, Any]:
    """Return the schema of a text of at most `max_chars` characters."""
    return {"type": "string", "maxLength": max_chars}


def integer_schema(minimum: int, maximum: int) -> dict[str, Any]:
    """Return the schema of a whole number between two bounds."""
    return {"type": "integer", "minimum": minimum, "maximum": maximum}


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def array_schema(item: dict[str, Any], max_items: int, min_items: int = 0) -> dict[str, Any]:
    """Return the schema of a list of at most `max_items` and at least `min_items`."""
    return {"type": "array", "items": item, "minItems": min_items, "maxItems": max_items}


def unit_properties(form: str, types: tuple[str, ...], max_items: int) -> dict[str, Any]:
    """Return the properties of the reply to one unit.

    Args:
        form: name of the task.
        types: values that a `type` may have; empty for any.
        max_items: of entities, relations, claims or members.

    Raises:
        KeyError: no such form.
    """
    name, number = text_schema(NAME_CHARS), integer_schema(1, _NUMBER)
    short = {"type": "string", "enum": list(dict.fromkeys(types))} if types else text_schema(TYPE_CHARS)
    described = dict(name=name, type=short, description=text_schema(DESCRIPTION_CHARS))
    match form:
        case "extract-graph":
            return dict(
                entities=array_schema(object_schema(id=number, **described), max_items), relations=_relations(max_items)
            )
        case "extract-entities":
            return dict(entities=array_schema(object_schema(**described), max_items))
        case "extract-relations":
            return dict(relations=_relations(max_items))
        case "extract-claims":
            day = text_schema(_DATE_CHARS)
            claim = object_schema(
                subject=name,
                object=name,
                type=text_schema(TYPE_CHARS),
                status={"type": "string", "enum": ["TRUE", "FALSE", "SUSPECTED"]},
                start_date=day,
                end_date=day,
                description=text_schema(CLAIM_CHARS),
                source_text=text_schema(QUOTE_CHARS),
            )
            return dict(claims=array_schema(claim, max_items))
        case "summarise":
            summary = object_schema(
                name=name,
                type=short,
                description=text_schema(SUMMARY_CHARS),
                members=array_schema(number, max_items, min_items=1),
            )
            return dict(entities=array_schema(summary, MAX_SUMMARIES, min_items=1))
        case "same-entity":
            return dict(same={"type": "boolean"}, reason=text_schema(REASON_CHARS))
        case "report":
            finding = object_schema(
                summary=text_schema(FINDING_CHARS),
                explanation=text_schema(EXPLANATION_CHARS),
                references=array_schema(text_schema(_REFERENCE_CHARS), _MAX_REFERENCES),
            )
            return dict(
                title=text_schema(TITLE_CHARS),
                summary=text_schema(REPORT_CHARS),
                findings=array_schema(finding, MAX_FINDINGS, min_items=1),
            )
        case "map-answer":
            point = object_schema(text=text_schema(POINT_CHARS), helpfulness=integer_schema(0, 100))
            return dict(points=array_schema(point, MAX_POINTS))
    raise KeyError(form)


def _relations(max_items: int) -> dict[str, Any]:
    pair = array_schema(integer_schema(1, _NUMBER), 2, min_items=2)
    relation = object_schema(pairs=array_schema(pair, MAX_PAIRS, min_items=1), description=text_schema(RELATION_CHARS))
    return array_schema(relation, max_items)
