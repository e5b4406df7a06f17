"""Answer stream: a model's answer from a retrieval, piece by piece, with its citations checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from hirag_dist.core.prompts.answer_requests import answer_request, reduce_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.citations import CitationReader
from hirag_dist.core.retrieval.context import UNKNOWN_ANSWER, citations
from hirag_dist.core.retrieval.support import Quoted, placed_citations
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ModelError, ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.protocols import AnswerModel
from hirag_dist.types import Answer, ChatReply, Retrieval

_FINISH_REASONS = {"length": "length", "content_filter": "content_filter", "refusal": "content_filter"}


async def answer_pieces(
    retrieval: Retrieval,
    model: AnswerModel,
    prompts: Prompts,
    count_tokens: Callable[[str], int],
    deadline_s: float | None = None,
    quoted: Quoted | None = None,
) -> AsyncGenerator[str | Answer]:
    """Yield the answer's text in pieces, and at last the answer, whose text is those pieces.

    Where nothing was retrieved, no model is called, and the answer is `UNKNOWN_ANSWER`. The points of a map-reduce have
    a prompt of their own, and the tokens of their calls are counted. Close the generator to close the model's stream
    immediately.

    Args:
        deadline_s: seconds left.
        quoted: returns the places of a stretch of a chunk; None: places with characters only.

    Raises:
        TimeoutError: the deadline passed before the answer was complete.
        ModelError: no model answers, or the one that did broke off or wrote no answer.
    """
    work = retrieval.map_work
    before = (0, 0) if work is None else (work.input_tokens, work.output_tokens)
    if not retrieval.context_refs:
        yield UNKNOWN_ANSWER
        yield Answer(UNKNOWN_ANSWER, (), 0, retrieval, "", *before)
        return
    make_request = answer_request if work is None else reduce_request
    request = make_request(retrieval.question, retrieval.context, prompts)
    reader = CitationReader(retrieval.context_refs)
    written: list[str] = []
    shown: list[str] = []
    reply: ChatReply | None = None
    try:
        async with aclosing(model.stream(request)) as stream, aclosing(_within(stream, deadline_s)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatReply):
                    reply = piece
                    continue
                written.append(piece)
                if ready := reader.feed(piece):
                    shown.append(ready)
                    yield ready
                if reader.stuck:
                    break
    except ModelError as error:
        if not written:
            raise
        raise ModelUnavailable(f"the model broke off in the middle of its answer; ask again: {error}", True) from error
    if reply is not None and not "".join(written).strip():
        raise _unanswered(reply)
    rest = reader.finish() if shown else reader.finish() or UNKNOWN_ANSWER
    if rest:
        shown.append(rest)
        yield rest
    text = "".join(shown)
    used = (0, 0) if reply is None else (reply.input_tokens, reply.output_tokens)
    if reply is None:  # the stream was left early
        used = sum(count_tokens(message.content) for message in request.messages), count_tokens("".join(written))
    yield Answer(
        text,
        placed_citations(text, citations(reader.cited, retrieval), retrieval, quoted),
        reader.dropped,
        retrieval,
        model.model_name(request),
        before[0] + used[0],
        before[1] + used[1],
        _FINISH_REASONS.get("" if reply is None else reply.finish_reason, "stop"),
    )


def _unanswered(reply: ChatReply) -> ModelError:
    """Return the error for a reply without an answer, which is something else than not to know one."""
    if reply.finish_reason in ("content_filter", "refusal"):
        return RequestRejected(f"model {reply.model} wrote no answer: the content filter of its endpoint stopped it")
    thought = f", {count_noun(reply.reasoning_tokens, 'token')} of it thinking" if reply.reasoning_tokens else ""
    wrote = f"it ended with {reply.finish_reason!r} after {count_noun(reply.output_tokens, 'token')}{thought}"
    if reply.finish_reason == "length":
        wrote += "; raise max_reply_tokens of its endpoint, or have it think less"
    return UnusableReply(f"model {reply.model} wrote no answer: {wrote}")


async def _within(stream: AsyncIterator[str | ChatReply], deadline_s: float | None) -> AsyncGenerator[str | ChatReply]:
    """Yield the pieces of a stream until the deadline; the time of the consumer counts too."""
    give_up_at = None if deadline_s is None else asyncio.get_running_loop().time() + deadline_s
    while True:
        try:
            async with asyncio.timeout_at(give_up_at) as limit:
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            if limit.expired():
                raise TimeoutError(
                    "the deadline passed before the answer was complete; allow more time, or retrieve alone"
                ) from error
            raise
        yield piece
