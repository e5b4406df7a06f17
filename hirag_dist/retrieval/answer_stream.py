"""Answers of a model from a retrieval: the window that it has, the stream of its text, and its citations, checked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from hirag_dist.config.sections import RetrievalConfig
from hirag_dist.core.prompts.reply_limits import ANSWER, FRAME, prompt_room, reply_tokens, usable_tokens
from hirag_dist.core.prompts.reply_validation import REPETITION
from hirag_dist.core.prompts.requests import (
    answer_request,
    map_request,
    reduce_request,
    short_answer_request,
    shorter_history,
)
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.citations import CitationReader, Quoted, placed_citations
from hirag_dist.core.retrieval.context import UNKNOWN_ANSWER, citations
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import ConfigError, InvalidQuery, ModelError, ModelUnavailable, RequestRejected, UnusableReply
from hirag_dist.protocols import AnswerModel
from hirag_dist.types import Answer, ChatReply, ChatRequest, Retrieval

PART_REPLY_TOKENS = 1000  # maximum of the reply about a part of a map-reduce
_MIN_CONTEXT = 100  # tokens; in less no passage says anything
_SCHEMA_TOKENS = 250  # of the form of a map reply, where the model is told it in words
_ANSWERS: Sequence[Callable[[str, str, Prompts], ChatRequest]] = (answer_request, short_answer_request, reduce_request)


@dataclass(frozen=True)
class AnswerWindow:
    """Cuts the limits of a question to the window of the model that answers it.

    Attributes:
        tokens: The context window of role `answer`; None where it is not known: nothing is cut.
    """

    tokens: int | None
    prompts: Prompts
    count_tokens: Callable[[str], int]

    def shortened(self, question: str) -> str:
        """Return a question with as much of the conversation before it as leaves the context half of the window."""
        if self.tokens is None:
            return question
        most = usable_tokens(self.tokens) // 2 - reply_tokens(self.tokens, ANSWER)
        return shorter_history(question, lambda text: self._prompt_size(text) <= max(most, 1))

    def cut(self, limits: RetrievalConfig, question: str) -> RetrievalConfig:
        """Return the limits with a context that the model can read together with the question.

        Raises:
            InvalidQuery: the question leaves no room for a context.
            ConfigError: the instructions alone leave none.
        """
        if self.tokens is None:
            return limits
        return self._cut(limits, question, self._prompt_size(question), reply_tokens(self.tokens, ANSWER))

    @property
    def part_reply_tokens(self) -> int:
        """Maximum tokens of the reply about a part of a map-reduce."""
        return PART_REPLY_TOKENS if self.tokens is None else min(PART_REPLY_TOKENS, reply_tokens(self.tokens, ANSWER))

    def cut_parts(self, limits: RetrievalConfig, question: str) -> RetrievalConfig:
        """Return the limits with parts of a map-reduce that the model has room for, together with a reply about each.

        Raises:
            InvalidQuery: the question leaves no room for a context.
            ConfigError: the instructions alone leave none.
        """
        if self.tokens is None:
            return limits
        reply = self.part_reply_tokens
        prompt = self._size(map_request(question, "", self.prompts, reply))
        schema = min(_SCHEMA_TOKENS, usable_tokens(self.tokens) // 8)
        return self._cut(self.cut(limits, question), question, prompt + schema, reply)

    def _cut(self, limits: RetrievalConfig, question: str, prompt: int, reply: int) -> RetrievalConfig:
        assert self.tokens is not None
        room = prompt_room(self.tokens, prompt, reply) - FRAME
        if room + self.count_tokens(question) < _MIN_CONTEXT:
            raise ConfigError(
                f"the context window of the model that answers, {self.tokens:,} tokens, has no room for a context "
                "beside the instructions and the reply: serve the model with a larger window, such as "
                "`llama-server -c 4096`, or take another model for llm.roles.answer"
            )
        if room < _MIN_CONTEXT:
            raise InvalidQuery(
                f"question: with its instructions it has {prompt:,} tokens, and the model that answers has a window of "
                f"{self.tokens:,} for these, the context and the reply; shorten the question"
            )
        return limits.model_copy(update={"context_tokens": min(limits.context_tokens, room)})

    def _prompt_size(self, question: str) -> int:
        """Return the tokens of the largest prompt of an answer, without its context."""
        return max(self._size(make(question, "", self.prompts)) for make in _ANSWERS)

    def _size(self, request: ChatRequest) -> int:
        return sum(self.count_tokens(message.content) for message in request.messages)


_FINISH_REASONS = {each: each for each in ("length", "content_filter", REPETITION)} | {"refusal": "content_filter"}


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
