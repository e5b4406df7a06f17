"""The request after a refused reply: never the same again, and without the refused reply in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hirag_dist.core.prompts.cut_replies import complete_part
from hirag_dist.core.prompts.reply_validation import CutOffReply, InvalidJson, MalformedReply, RepeatedReply
from hirag_dist.core.text.thinking import without_thinking
from hirag_dist.errors import ContextLengthExceeded
from hirag_dist.types import ChatReply, ChatRequest, Rejected

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
