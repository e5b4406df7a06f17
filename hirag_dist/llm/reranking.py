"""Reranking of texts by a model behind an endpoint, within its rate limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from hirag_dist.llm.call import Call, CallContext, CallReply, PricedByToken
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.types import FloatVector, RateLimits

_ROLE = "rerank"


@dataclass(frozen=True, slots=True)
class Reranked:
    """The reply to one request.

    Attributes:
        scores: (n_texts,) relevance, larger is better.
        input_tokens: tokens that the endpoint reports; None if it reports none.
        rate_limits: the limits that the endpoint's headers named.
    """

    scores: FloatVector
    input_tokens: int | None = None
    rate_limits: RateLimits | None = None


class PaidReranker(Protocol):
    """A reranker that is paid by the token.

    Attributes:
        batch_size: texts that one request may hold.
    """

    name: str
    batch_size: int

    async def request(self, question: str, texts: Sequence[str]) -> Reranked:
        """Return the relevance of texts to a question. Raises as `protocols.ChatModel` does."""
        ...

    async def close(self) -> None:
        """Close connections."""
        ...


@dataclass(frozen=True)
class PricedReranker(PricedByToken[PaidReranker]):
    """A reranker at an endpoint. Implements `llm.call.CallTarget`."""

    operation: ClassVar[str] = "rerank"

    async def ping(self, call: RerankCall) -> bool:
        """Return False: a request of one text is as good as any."""
        return False

    async def send(self, call: RerankCall) -> CallReply[Reranked]:
        """Send one request and count its cost."""
        question, texts = call.payload
        reranked = await self.model.request(question, texts)
        used = call.tokens if reranked.input_tokens is None else reranked.input_tokens
        return self.counted(call, reranked, used, reranked.rate_limits)


RerankCall = Call[tuple[str, Sequence[str]], Reranked]


class LimitedReranker:
    """Asks a reranker within its limits. Implements `protocols.Reranker`.

    Args:
        count_tokens: counts a text; the endpoint reads the question again with each.
    """

    max_texts = 50

    def __init__(
        self,
        target: PricedReranker,
        retried: RetriedCalls,
        count_tokens: Callable[[str], int],
        context: CallContext | None = None,
    ) -> None:
        self._target = target
        self._retried = retried
        self._count = count_tokens
        self._context = CallContext() if context is None else context

    async def scores(self, question: str, texts: Sequence[str]) -> FloatVector:
        """Return (n_texts,) relevance of texts to a question, larger is better; the requests run at the same time.

        Raises:
            ModelError: the endpoint does not answer, or refuses a request.
            BudgetReached: a request would pass a spending limit.
        """
        size = self._target.model.batch_size
        parts = [texts[start : start + size] for start in range(0, len(texts), size)]
        found = await asyncio.gather(*(self._scores(question, part) for part in parts))
        return np.concatenate([np.zeros(0), *found])

    async def close(self) -> None:
        """Close connections."""
        await self._target.model.close()

    async def _scores(self, question: str, texts: Sequence[str]) -> FloatVector:
        tokens = len(texts) * self._count(question) + sum(map(self._count, texts))
        call: RerankCall = Call((question, texts), [self._target], _ROLE, tokens, 2 * tokens, context=self._context)
        return (await self._retried(call)).value.scores
