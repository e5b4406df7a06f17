"""Typed replies of an OpenAI-compatible endpoint. This is the boundary: no field of a foreign reply is used unchecked.

Every function takes what JSON can hold, of any type, size and sign, and returns values that tables, bills and spending
limits can hold. A reply without a usable text or vectors raises `UnusableField`; a usage that cannot be true is
unknown, so that the caller estimates it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import count_noun, encodable, one_line, shorten
from hirag_dist.llm.reply_store.codec import token_count
from hirag_dist.types import FloatMatrix

MAX_CHARS_PER_TOKEN = 64  # of any tokenizer, runs of white space aside
_SLACK_CHARS = 1000
_SHOWN_CHARS = 30  # of a count that cannot be true
_NAME_CHARS = 100
_MAX_INDEX_DIGITS = 9


class UnusableField(ValueError):
    """A reply lacks what it was asked for; the message says what, as the end of a sentence."""


class MissingVector(UnusableField):
    """A vector is null, as of a text that the endpoint refuses."""


@dataclass(frozen=True, slots=True)
class ReportedUsage:
    """The token counts of a reply.

    Attributes:
        input_tokens, output_tokens: None where they are missing or cannot be true.
        cached_tokens: of the input, at most all of it; 0 where they are missing or cannot be true.
        problem: the first field that cannot be true, with its value; "" where there is none.
    """

    input_tokens: int | None
    cached_tokens: int
    output_tokens: int | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply of `/chat/completions`.

    Attributes:
        model: "" where the reply does not name it.
    """

    text: str
    finish_reason: str
    model: str
    usage: ReportedUsage


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Return the JSON object that a body holds.

    Raises:
        UnusableField: it holds something else.
    """
    try:
        data = json.loads(content)
    except RecursionError:
        raise UnusableField("JSON that is nested too deeply") from None
    except ValueError:  # no JSON, no UTF-8, or an integer of thousands of digits
        raise UnusableField("something that is not JSON") from None
    if not isinstance(data, dict):
        raise UnusableField("JSON that is no object")
    return data


def parse_completion(data: Mapping[str, Any], n_input_chars: int) -> Completion:
    """Return the first choice of a chat reply with its usage.

    Args:
        data: the body.
        n_input_chars: of the prompt, by which reported token counts are judged.

    Raises:
        UnusableField: it has no choice, or the choice has no message.
    """
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise UnusableField("without a choice")
    choice = choices[0]
    message = choice.get("message")
    if message is None:
        message = {}
    if not isinstance(message, dict):
        raise UnusableField("with a message that is no object")
    refusal = message_text(message.get("refusal"))
    text = refusal or message_text(message.get("content"))
    finish_reason = "refusal" if refusal else name(choice.get("finish_reason")) or "stop"
    return Completion(
        text, finish_reason, name(data.get("model")), parse_usage(data.get("usage"), n_input_chars, len(text))
    )


def parse_delta(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text that an event of a stream adds, and the finish reason where it ends the reply, else ""."""
    choices = event.get("choices")
    texts, reason = [], ""
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            delta = choice.get("delta")
            if isinstance(delta, dict):
                texts.append(message_text(delta.get("content")) or message_text(delta.get("refusal")))
            reason = reason or name(choice.get("finish_reason"))
    return "".join(texts), reason


def parse_usage(value: object, n_input_chars: int, n_output_chars: int) -> ReportedUsage:
    """Return the usage that a reply reports.

    >>> parse_usage({"prompt_tokens": 9, "completion_tokens": -1}, 20, 10)
    ReportedUsage(input_tokens=9, cached_tokens=0, output_tokens=None, problem='completion_tokens -1')
    """
    if value is None:
        return ReportedUsage(None, 0, None)
    if not isinstance(value, dict):
        return ReportedUsage(None, 0, None, "usage is no object")
    problems: list[str] = []
    n_input = _reported(value, "prompt_tokens", n_input_chars, problems)
    n_output = _reported(value, "completion_tokens", n_output_chars, problems)
    details = value.get("prompt_tokens_details")
    holder, field = (
        (details, "cached_tokens")
        if isinstance(details, dict) and details.get("cached_tokens")
        else (value, "prompt_cache_hit_tokens")
    )
    n_cached = _reported(holder, field, 0, problems) or 0
    if n_input is not None and n_cached > n_input:
        problems.append(f"{field} {n_cached} of {n_input}")
    if n_input is None or n_cached > n_input:
        n_cached = 0
    return ReportedUsage(n_input, n_cached, n_output, problems[0] if problems else "")


def parse_vectors(data: Mapping[str, Any], n_texts: int) -> FloatMatrix:
    """Return (n_texts, dim) float64 vectors, each at the place that its `index` names, as the endpoint sent them.

    Where no item has an `index`, they stand in the order of the texts. A number may come as a string or a float.

    Raises:
        MissingVector: one is null.
        UnusableField: vectors are missing, or there are too many, cannot be read, or have several sizes; an `index`
            names no text, or one text twice.
    """
    items = data.get("data")
    if not isinstance(items, list) or len(items) != n_texts or not all(isinstance(item, dict) for item in items):
        n_items = len(items) if isinstance(items, list) else 0
        raise UnusableField(f"{count_noun(n_items, 'vector')} for {count_noun(n_texts, 'text')}")
    places = list(range(n_texts))
    if any(item.get("index") is not None for item in items):
        places = [text_index(item.get("index")) for item in items]
        if sorted(places) != list(range(n_texts)):
            raise UnusableField("vectors whose `index` does not say which text they are for")
    rows: list[NDArray[np.float64]] = [np.zeros(0)] * n_texts
    for place, item in zip(places, items, strict=True):
        rows[place] = _vector(item.get("embedding"))
    if len({len(row) for row in rows}) != 1:
        raise UnusableField("vectors of several sizes at once")
    return np.stack(rows)


def message_text(content: object) -> str:
    """Return a message's text; some endpoints send it as a list of parts."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        return encodable("".join(part for part in parts if isinstance(part, str)))
    return encodable(content) if isinstance(content, str) else ""


def name(value: object) -> str:
    """Return a foreign name or code, on one line and of bounded length; "" for what is none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, str | int)
        or (isinstance(value, int) and abs(value) >= 1 << 63)
    ):
        return ""
    return shorten(one_line(encodable(str(value))), _NAME_CHARS)


def _reported(holder: Mapping[str, Any], field: str, n_chars: int, problems: list[str]) -> int | None:
    """Return a token count if it can be true for a text of so many characters; else note it."""
    value = holder.get(field)
    if value is None:
        return None
    count = token_count(value)
    if count == 0 and n_chars:
        return None  # as servers say that do not count
    if count is None or n_chars > count * MAX_CHARS_PER_TOKEN + _SLACK_CHARS:
        shown = str(value) if isinstance(value, str | int | float) else type(value).__name__
        problems.append(f"{field} {shorten(one_line(encodable(shown)), _SHOWN_CHARS)}")
        return None
    return count


def text_index(value: object) -> int:
    """Return a place that is an integer, also where it is written as a string or a float; −1 for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _MAX_INDEX_DIGITS:
        return int(value)
    count = token_count(value)
    return -1 if count is None else count


def _vector(embedding: object) -> NDArray[np.float64]:
    if embedding is None:
        raise MissingVector("no vector for a text")
    try:
        if isinstance(embedding, str):
            row = np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4").astype(np.float64)
        elif isinstance(embedding, list):
            row = np.asarray(embedding, dtype=np.float64)
        else:
            raise TypeError
    except (binascii.Error, ValueError, TypeError, OverflowError):
        raise UnusableField("a vector that cannot be read") from None
    if row.ndim > 2 or row.size != row.shape[-1] or not row.size:  # a row may stand in a list of its own
        raise UnusableField("a vector that cannot be read")
    return row.reshape(-1)
