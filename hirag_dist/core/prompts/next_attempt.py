"""The request after a refused or cut reply: never the same again, and without the refused reply in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

from hirag_dist.core.prompts.records import record_lines
from hirag_dist.core.prompts.reply_validation import CutOffReply, InvalidJson, MalformedReply, RepeatedReply
from hirag_dist.core.text.thinking import without_thinking
from hirag_dist.errors import ContextLengthExceeded
from hirag_dist.types import ChatReply, ChatRequest, Rejected

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


TEMPERATURE: Final = 0.7  # at 0, a model that is asked the same writes the same
FREQUENCY_PENALTY: Final = 0.5
_REASON_CHARS = 200
_MARGIN_TOKENS = 16  # between a prompt as an endpoint counts it and its window


def next_attempt(
    first: ChatRequest, before: ChatRequest, reply: ChatReply, refusal: Exception, n_refused: int = 1
) -> ChatRequest:
    """Return the request that follows a refused reply.

    A loop is left by a penalty on words that were used; a reply that was cut off gets twice the limit, and after
    thinking, which no task's limit counts, the endpoint's own; one that was no JSON is asked for once more, at another
    temperature. Any other refusal is told in a few words, with the number of the attempt from the third on: an endpoint
    that remembers its replies would give the same one. The refused reply is not shown again: a small model would go on
    with it.

    Args:
        first: the request of the first attempt.
        before: the request that was replied to.
        reply: the refused reply.
        refusal: why it was refused.
        n_refused: Refused replies to the unit, this one included.
    """
    again = replace(before, messages=first.messages, temperature=TEMPERATURE)
    if isinstance(refusal, RepeatedReply):
        return replace(again, frequency_penalty=FREQUENCY_PENALTY)
    if isinstance(refusal, CutOffReply):
        limit = 2 * before.max_tokens if before.max_tokens and not reply.reasoning_tokens else None
        return replace(again, max_tokens=limit)
    if isinstance(refusal, InvalidJson):
        return again
    *others, last = first.messages
    reason = str(refusal)[:_REASON_CHARS]
    note = f"\n\nAn earlier reply could not be used: {reason}. Reply in the requested form, and completely."
    if n_refused > 1:
        note += f" This is attempt {n_refused + 1}."
    return replace(again, messages=(*others, replace(last, content=last.content + note)))


def is_incomplete(refusal: Exception) -> bool:
    """Return whether a refused reply may hold complete records before its end."""
    return isinstance(refusal, CutOffReply | RepeatedReply)


def is_short_of_limit(request: ChatRequest, reply: ChatReply) -> bool:
    """Return whether a reply was cut off well before the request's limit: by the window, or an endpoint's own limit."""
    return 0 < 10 * reply.output_tokens < 9 * (request.max_tokens or 0)


def kept_part(reply: ChatReply, letter: Rejected) -> ChatReply:
    """Return a reply with what is complete of it, to be read as if it had ended there.

    Args:
        letter: the dead letter of what is not complete.

    Raises:
        MalformedReply: nothing of it is complete.
    """
    text = complete_part(without_thinking(reply.text))
    if not text:
        raise MalformedReply("the reply was cut off before anything was complete")
    return replace(reply, text=text, finish_reason="stop", kept_from=letter)


def fitted(request: ChatRequest, error: ContextLengthExceeded) -> ChatRequest | None:
    """Return a request with a lower limit, where its limit alone does not fit into the window; else None.

    A limit below a quarter of what the task takes is none: a smaller part of the material is asked for then.
    """
    if not request.max_tokens:
        return None
    if error.window_tokens is None or error.prompt_tokens is None:
        return replace(request, max_tokens=None)
    room = error.window_tokens - error.prompt_tokens - _MARGIN_TOKENS
    return replace(request, max_tokens=room) if request.max_tokens > room >= request.max_tokens // 4 else None
