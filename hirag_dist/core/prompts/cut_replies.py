"""What is complete of a reply that broke off at the token limit, or that repeats itself to the end."""

from __future__ import annotations

import json
import re
from typing import Any

from hirag_dist.core.prompts.record_lines import record_lines

_DECODER = json.JSONDecoder(strict=False)
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\\?\Z)|[{}\[\],]', re.DOTALL)
_SENTENCE_END = re.compile(r"""[.!?。！？…]["'”’»)\]]*(?=\s|\Z)|[。！？]""")
_CLOSING = {"{": "}", "[": "]"}
_MAX_ENDS = 400  # places that are tried, so that no reply takes long


def complete_part(text: str) -> str:
    """Return the part of a text that broke off which is complete: items of JSON lists, lines, or else sentences.

    What repeats, other than by its `id`, is there once. The part is empty where nothing is complete.

    >>> complete_part('{"entities": [{"id": 1, "name": "Ada"}, {"id": 2, "na')
    '{"entities": [{"id": 1, "name": "Ada"}]}'
    """
    start = text.find("{")
    if start >= 0 and not text[:start].count("|"):
        closed = _closed(text[start:])
        return "" if closed is None else json.dumps(_distinct(closed), ensure_ascii=False)
    *lines, _ = record_lines(text)
    if any("|" in line for line in lines):
        return "\n".join(dict.fromkeys(line for line in lines if line.strip()))
    ends = list(_SENTENCE_END.finditer(text))
    return text[: ends[-1].end()] if ends else ""


def _closed(text: str) -> Any:
    """Return the JSON value of a text cut off behind its last complete item, or None where it has none.

    A value that may go on, such as a number at the end, is not complete. Each place where an item ends is tried from
    the last one on; the first that can be read with its brackets closed is taken, so that broken text in between
    costs what follows it and no more.
    """
    open_brackets: list[str] = []
    ends: list[tuple[int, str]] = []
    for match in _STRUCTURE.finditer(text):
        mark = match[0]
        if mark in _CLOSING:
            open_brackets.append(_CLOSING[mark])
            continue
        if open_brackets and mark == open_brackets[-1]:
            open_brackets.pop()
        elif mark != ",":
            continue
        if len(open_brackets) < 2 or open_brackets[1:] == ["]"]:  # an item of a list of the outermost object, or more
            ends.append((match.start() if mark == "," else match.end(), "".join(reversed(open_brackets))))
    for end, closing in ends[: -_MAX_ENDS - 1 : -1]:
        try:
            return _DECODER.decode(text[:end] + closing)
        except (ValueError, RecursionError):
            continue
    return None


def _distinct(value: Any) -> Any:
    """Return a value without the items of lists that repeat an earlier one in all but its number."""
    if isinstance(value, dict):
        return {key: _distinct(each) for key, each in value.items()}
    if not isinstance(value, list):
        return value
    found = {
        json.dumps({**each, "id": 0} if isinstance(each, dict) else each, sort_keys=True): each
        for each in reversed(value)
    }
    return [_distinct(each) for each in reversed(found.values())]
