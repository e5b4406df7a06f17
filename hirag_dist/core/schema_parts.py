"""JSON schemas as strict structured outputs want them: every property required, and none beside them."""

from __future__ import annotations

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
