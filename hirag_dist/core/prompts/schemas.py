"""JSON schemas of replies for strict structured outputs: every property is required, and no others are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

TEXT: Final[dict[str, Any]] = {"type": "string"}
INTEGER: Final[dict[str, Any]] = {"type": "integer"}


def object_schema(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def array_schema(item: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "items": item}


_ENTITY_SCHEMA = object_schema(name=TEXT, type=TEXT, description=TEXT)
_NUMBERED_SCHEMA = object_schema(id=INTEGER, name=TEXT, type=TEXT, description=TEXT)
_RELATION_SCHEMA = object_schema(pairs=TEXT, description=TEXT)
_CLAIM_SCHEMA = object_schema(
    subject=TEXT,
    object=TEXT,
    type=TEXT,
    status=TEXT,
    start_date=TEXT,
    end_date=TEXT,
    description=TEXT,
    source_text=TEXT,
)
_SUMMARY_SCHEMA = object_schema(name=TEXT, type=TEXT, description=TEXT, members=TEXT)
_POINT_SCHEMA = object_schema(text=TEXT, helpfulness=INTEGER)
_FINDING_SCHEMA = object_schema(summary=TEXT, explanation=TEXT, references=TEXT)

PROPERTIES: Mapping[str, dict[str, Any]] = {  # task → properties of the reply to one unit
    "extract-graph": dict(entities=array_schema(_NUMBERED_SCHEMA), relations=array_schema(_RELATION_SCHEMA)),
    "extract-entities": dict(entities=array_schema(_ENTITY_SCHEMA)),
    "extract-relations": dict(relations=array_schema(_RELATION_SCHEMA)),
    "extract-claims": dict(claims=array_schema(_CLAIM_SCHEMA)),
    "summarise": dict(entities=array_schema(_SUMMARY_SCHEMA)),
    "same-entity": dict(same={"type": "boolean"}, reason=TEXT),
    "report": dict(title=TEXT, summary=TEXT, findings=array_schema(_FINDING_SCHEMA)),
    "map-answer": dict(points=array_schema(_POINT_SCHEMA)),
}
