"""Typed replies of an OpenAI-compatible endpoint. This is the boundary: no field of a foreign reply is used unchecked.

Every function takes what JSON can hold, of any type, size and sign, and returns values that tables, bills and spending
limits can hold. A reply without a usable text or vectors raises `UnusableField`; a usage that cannot be true is
unknown, so that the caller estimates it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.prompts.reply_validation import LOOP_CHARS, is_stuck
from hirag_dist.core.text.normalize import count_noun, encodable, one_line, shorten
from hirag_dist.llm.reply_store.block_format import MAX_TOKENS, token_count
from hirag_dist.types import FloatMatrix

MAX_CHARS_PER_TOKEN = 64  # of any tokenizer, runs of white space aside
_SLACK_CHARS = 1000
_SHOWN_CHARS = 30  # of a count that cannot be true
_NAME_CHARS = 100
_MAX_INDEX_DIGITS = 9
_CHECKED_PIECES = 250  # pieces of a stream, about a token each, between two looks at whether it repeats itself
INTERRUPTED = "interrupted"  # finish_reason of a reply whose server gave up before its end
_REASONS = {
    **dict.fromkeys(("length", "max_tokens", "max_output_tokens", "max_completion_tokens", "max_length"), "length"),
    **dict.fromkeys(("model_length", "model_context_window_exceeded", "context_length", "token_limit"), "length"),
    **dict.fromkeys(("stop", "end_turn", "eos", "eos_token", "stop_sequence", "complete", "completed"), "stop"),
    **dict.fromkeys(
        ("content_filter", "safety", "recitation", "blocklist", "prohibited_content", "spii", "content_filtered"),
        "content_filter",
    ),
    "sensitive": "content_filter",
    **dict.fromkeys(("error", "network_error", "abort", "aborted", "cancelled", "canceled"), INTERRUPTED),
    **dict.fromkeys(("insufficient_system_resource", "timeout", "preempted"), INTERRUPTED),
}
_THOUGHTS = frozenset({"reasoning", "thinking", "thought", "reasoning_content", "reasoning.text"})  # types of parts


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
        reasoning_tokens: of the output, at most all of it; None where they are missing or cannot be true.
        problem: the first field that cannot be true, with its value; "" where there is none.
    """

    input_tokens: int | None
    cached_tokens: int
    output_tokens: int | None
    problem: str = ""
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A reply of `/chat/completions`, whole or put together from a stream.

    Attributes:
        text: its content, or its refusal; thinking inside it is still there.
        model: "" where the reply does not name it.
        reasoning: thinking that came in fields of its own.
    """

    text: str
    finish_reason: str
    model: str
    usage: ReportedUsage
    reasoning: str = ""


def parse_object(content: bytes | str) -> dict[str, Any]:
    """Return the JSON object that a body holds. Raises UnusableField where it holds something else."""
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
    text, reasoning = message_parts(message)
    text = refusal or text
    reason = "refusal" if refusal else finish_reason(choice.get("finish_reason")) or "stop"
    usage = parse_usage(data.get("usage"), n_input_chars, len(text) + len(reasoning))
    return Completion(text, reason, name(data.get("model")), usage, reasoning)


class StreamedParts:
    """Puts the events of a streamed reply together.

    Attributes:
        finish_reason: "" until the reply ends.
        done: whether the stream said that it is at its end.
    """

    def __init__(self) -> None:
        self.finish_reason = ""
        self.done = False
        self._texts: list[str] = []
        self._n_checked = 0
        self._reasoning: list[str] = []
        self._has_choice = False
        self._model: object = None
        self._usage: object = None

    @property
    def is_complete(self) -> bool:
        """Whether the reply has come to its end."""
        return self.done or bool(self.finish_reason)

    def extend(self, events: Sequence[Any]) -> None:
        """Add events; `add` does the same, with several times the CPU time for those that hold nothing but text."""
        for event in events:
            try:
                choice = event["choices"][0]
                delta = choice["delta"]
                text = delta["content"]
                is_plain = len(delta) == 1 and type(text) is str and choice["finish_reason"] is None
                if is_plain and self._has_choice and not event.get("usage"):
                    self._texts.append(text)
                    continue
            except (LookupError, TypeError, AttributeError):
                pass
            if isinstance(event, dict):
                self.add(event)

    def add(self, event: Mapping[str, Any]) -> str:
        """Return the text that an event adds to the reply."""
        self._model = self._model or event.get("model")
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return ""
        reason = finish_reason(choice.get("finish_reason"))
        delta = choice.get("delta")
        if delta is None:
            delta = choice.get("message")  # of a whole answer to a request for a stream
            self.done = self.done or delta is not None
        if not isinstance(delta, dict):
            self.finish_reason = reason or self.finish_reason
            return ""
        self._has_choice = True
        refusal = message_text(delta.get("refusal"))
        text, reasoning = message_parts(delta)
        text = text or refusal
        self.finish_reason = "refusal" if refusal or self.finish_reason == "refusal" else reason or self.finish_reason
        if text:
            self._texts.append(text)
        if reasoning:
            self._reasoning.append(reasoning)
        return text

    def is_stuck(self) -> bool:
        """Return whether the text so far ends in a loop. Looks once in `_CHECKED_PIECES` pieces."""
        if len(self._texts) - self._n_checked < _CHECKED_PIECES:
            return False
        self._n_checked = len(self._texts)
        return is_stuck(self._tail(LOOP_CHARS))

    def _tail(self, n_chars: int) -> str:
        """Return the last characters of the text so far, at least `n_chars` where it has as many."""
        pieces: list[str] = []
        for piece in reversed(self._texts):
            if n_chars <= 0:
                break
            pieces.append(piece)
            n_chars -= len(piece)
        return "".join(reversed(pieces))

    def completion(self, n_input_chars: int) -> Completion:
        """Return the whole reply; a stream that ends without a reason, but as a stream does, was not cut off.

        Raises:
            UnusableField: no event had a choice.
        """
        if not self._has_choice:
            raise UnusableField("without a choice")
        text, reasoning = encodable("".join(self._texts)), "".join(self._reasoning)
        usage = parse_usage(self._usage, n_input_chars, len(text) + len(reasoning))
        return Completion(text, self.finish_reason or "stop", name(self._model), usage, reasoning)


def finish_reason(value: object) -> str:
    """Return why a reply ended, in one word for what servers call by many; "" where that is not said.

    `INTERRUPTED` is the word for servers that failed, stopped or were overloaded while they wrote.

    >>> [finish_reason(each) for each in ("MAX_TOKENS", "end_turn", "SAFETY", "abort", "tool_calls", None)]
    ['length', 'stop', 'content_filter', 'interrupted', 'tool_calls', '']
    """
    reason = name(value)
    return _REASONS.get(reason.lower(), reason)


def parse_usage(value: object, n_input_chars: int, n_output_chars: int) -> ReportedUsage:
    """Return the usage that a reply reports.

    Some servers leave thinking out of `completion_tokens`, and bill it: a `total_tokens` above the sum of both counts,
    or without it more `reasoning_tokens` than `completion_tokens`, shows it. Then it is added to the output.

    >>> parse_usage({"prompt_tokens": 9, "completion_tokens": -1}, 20, 10).problem
    'completion_tokens -1'
    >>> parse_usage({"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 34}, 20, 10).output_tokens
    25
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
    details = value.get("completion_tokens_details")
    n_thought = token_count(details.get("reasoning_tokens")) if isinstance(details, dict) else None
    if n_output is not None:
        n_total = token_count(value.get("total_tokens"))
        n_output = min(n_output + _thought_beside(n_total, n_input, n_output, n_thought), MAX_TOKENS)
        n_thought = None if n_thought is not None and n_thought > n_output else n_thought
    return ReportedUsage(n_input, n_cached, n_output, problems[0] if problems else "", n_thought)


def _thought_beside(n_total: int | None, n_input: int | None, n_output: int, n_thought: int | None) -> int:
    """Return the tokens of thinking that a server counts beside the output, at most those that it reports."""
    if n_total and n_input is not None:
        n_beside = max(n_total - n_input - n_output, 0)
        return n_beside if n_thought is None else min(n_beside, n_thought)
    return n_thought if n_thought is not None and n_thought > n_output else 0


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


def message_parts(message: Mapping[str, Any]) -> tuple[str, str]:
    """Return the text of a message, or of the part of one that an event of a stream adds, and its thinking."""
    content = message.get("content")
    thought = message.get("reasoning_content") or message.get("reasoning") or message.get("thinking")
    reasoning = message_text(thought)
    if isinstance(content, list):
        is_thought = [isinstance(part, dict) and part.get("type") in _THOUGHTS for part in content]
        thoughts = [part for part, thinks in zip(content, is_thought, strict=True) if thinks]
        content = [part for part, thinks in zip(content, is_thought, strict=True) if not thinks]
        reasoning += "".join(message_text(part.get("text") or part.get("thinking")) for part in thoughts)
    return message_text(content), reasoning


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
        shown = repr(value) if isinstance(value, str | int | float) else type(value).__name__
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
