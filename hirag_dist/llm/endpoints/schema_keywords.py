"""Keywords of JSON schemas that some servers refuse: a schema without them asks for the same fields, unbounded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

# Those that are refused most often come first. They are given up in this order, where a refusal names none.
KEYWORD_GROUPS: tuple[tuple[str, ...], ...] = (
    ("maxLength", "minLength", "pattern", "maxItems", "minItems"),
    ("minimum", "maximum", "enum", "additionalProperties"),
)


def without(schema: Mapping[str, Any], keywords: Collection[str]) -> dict[str, Any]:
    """Return a schema without some keywords, at any depth; properties that are named as a keyword stay.

    >>> without({"properties": {"enum": {"type": "string", "maxLength": 9}}}, ["enum", "maxLength"])
    {'properties': {'enum': {'type': 'string'}}}
    """
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            kept[key] = {name: _inner(inner, keywords) for name, inner in value.items()}
        elif key not in keywords:
            kept[key] = value if key in ("enum", "const", "default", "required") else _inner(value, keywords)
    return kept


def to_give_up(schema: Mapping[str, Any], said: str, given_up: Collection[str]) -> frozenset[str]:
    """Return the keywords of a schema that a server refuses next: those that it names, else the next group.

    Args:
        said: the server's refusal.
        given_up: keywords that were left out of the refused request.
    """
    present = [tuple(word for word in group if _uses(schema, word)) for group in KEYWORD_GROUPS]
    left = [[word for word in group if word not in given_up] for group in present]
    lower = said.lower()
    named = frozenset(word for group in left for word in group if word.lower() in lower)
    return named or frozenset(next((group for group in left if group), ()))


def _inner(value: Any, keywords: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return without(value, keywords)
    if isinstance(value, list):
        return [_inner(item, keywords) for item in value]
    return value


def _uses(value: Any, keyword: str) -> bool:
    if isinstance(value, Mapping):
        return keyword in value or any(_uses(inner, keyword) for inner in value.values())
    return isinstance(value, list) and any(_uses(item, keyword) for item in value)
