"""The built-in model behind the ChatModel port."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable

from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

_PIECES = re.compile(r"\s*\S{1,24}|\s+")


class ExtractiveModel:
    """Replies made by rules and counting from the messages alone. This is not a language model.

    It finds names and terms by their form and frequency, relations by words that stand close together, and puts
    summaries, reports and answers together from sentences that are already there. It understands nothing: it makes
    demonstrations, tests and throughput measurements possible where no model is configured, and says nothing about
    the quality that a language model would give. Tasks that need judgement (judge, claims, questions) it refuses.
    """

    rate_limits: RateLimits | None = None

    def __init__(self, count_tokens: Callable[[str], int], seed: int = 0) -> None:
        """Take how tokens are counted, and what chooses the entities that a first pass overlooks."""
        self.name = "extractive" if seed == 0 else f"extractive-{seed}"
        self._count_tokens = count_tokens
        self._seed = seed

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply. Raises RequestRejected for a task that needs a language model."""
        text = reply_to(request.messages, request.form, self._seed)
        return ChatReply(
            text=text,
            model=self.name,
            input_tokens=sum(self._count_tokens(message.content) for message in request.messages),
            output_tokens=self._count_tokens(text),
        )

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text in pieces of about a word, white space kept, and then the reply."""
        reply = await self.complete(request)
        for piece in _PIECES.findall(reply.text):
            yield piece
        yield reply

    async def close(self) -> None:
        """Do nothing: no connection is open."""
