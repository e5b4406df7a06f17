"""The room that a context has in the window of the model that answers, beside its instructions, question and reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hirag_dist.config.sections import RetrievalConfig
from hirag_dist.core.prompts.answer_requests import answer_request, map_request, reduce_request, short_answer_request
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.question_history import shorter_history
from hirag_dist.core.windows import ANSWER, FRAME, prompt_room, reply_tokens, usable_tokens
from hirag_dist.errors import InvalidQuery
from hirag_dist.types import ChatRequest

PART_REPLY_TOKENS = 1000  # maximum of the reply about a part of a map-reduce
_MIN_CONTEXT = 100  # tokens; in less no passage says anything
_SCHEMA_TOKENS = 250  # of the form of a map reply, where the model is told it in words
_ANSWERS: Sequence[Callable[[str, str, Prompts], ChatRequest]] = (answer_request, short_answer_request, reduce_request)


@dataclass(frozen=True)
class AnswerWindow:
    """Cuts the limits of a question to the window of the model that answers it.

    Attributes:
        tokens: The context window of role `answer`; None where it is not known: nothing is cut.
        prompts: The prompts in force.
        count_tokens: Counts the tokens of a text.
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
        """
        if self.tokens is None:
            return limits
        return self._cut(limits, self._prompt_size(question), reply_tokens(self.tokens, ANSWER))

    @property
    def part_reply_tokens(self) -> int:
        """Maximum tokens of the reply about a part of a map-reduce."""
        return PART_REPLY_TOKENS if self.tokens is None else min(PART_REPLY_TOKENS, reply_tokens(self.tokens, ANSWER))

    def cut_parts(self, limits: RetrievalConfig, question: str) -> RetrievalConfig:
        """Return the limits with parts of a map-reduce that the model has room for, together with a reply about each.

        Raises:
            InvalidQuery: the question leaves no room for a context.
        """
        if self.tokens is None:
            return limits
        reply = self.part_reply_tokens
        prompt = self._size(map_request(question, "", self.prompts, reply))
        schema = min(_SCHEMA_TOKENS, usable_tokens(self.tokens) // 8)
        return self._cut(self.cut(limits, question), prompt + schema, reply)

    def _cut(self, limits: RetrievalConfig, prompt: int, reply: int) -> RetrievalConfig:
        assert self.tokens is not None
        room = prompt_room(self.tokens, prompt, reply) - FRAME
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
