"""Lenient JSON parsing: fences, surrounding prose, trailing commas, curly quotes, or a missing last brace."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

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
