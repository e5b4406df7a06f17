"""JSON schemas of replies for strict structured outputs: every property is required, and no others are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TEXT: Final[dict[str, Any]] = {"type": "string"}
NUMBER: Final[dict[str, Any]] = {"type": "number"}


def an_object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def an_array(item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


_ENTITY_SCHEMA = an_object(name=TEXT, type=TEXT, description=TEXT)
_RELATION_SCHEMA = an_object(source=TEXT, target=TEXT, description=TEXT, strength=NUMBER)
_CLAIM_SCHEMA = an_object(
    subject=TEXT,
    object=TEXT,
    type=TEXT,
    status=TEXT,
    start_date=TEXT,
    end_date=TEXT,
    description=TEXT,
    source_text=TEXT,
)
_COVER_SCHEMA = an_object(member={"type": "integer"}, entity=TEXT, description=TEXT, strength=NUMBER)
_POINT_SCHEMA = an_object(text=TEXT, helpfulness={"type": "integer"})
_FINDING_SCHEMA = an_object(summary=TEXT, explanation=TEXT, references=an_array(TEXT))

PROPERTIES: Mapping[str, dict[str, Any]] = {  # task → properties of the reply to one unit
    "extract-graph": dict(entities=an_array(_ENTITY_SCHEMA), relations=an_array(_RELATION_SCHEMA)),
    "extract-entities": dict(entities=an_array(_ENTITY_SCHEMA)),
    "extract-relations": dict(relations=an_array(_RELATION_SCHEMA)),
    "extract-claims": dict(claims=an_array(_CLAIM_SCHEMA)),
    "summarise": dict(entities=an_array(_ENTITY_SCHEMA), relations=an_array(_COVER_SCHEMA)),
    "same-entity": dict(same={"type": "boolean"}, reason=TEXT),
    "report": dict(
        title=TEXT,
        summary=TEXT,
        rating=NUMBER,
        rating_explanation=TEXT,
        findings=an_array(_FINDING_SCHEMA),
    ),
    "map-answer": dict(points=an_array(_POINT_SCHEMA)),
}
