"""Rerankers behind an endpoint, within its rate limits.

These are the `/rerank` of Cohere, Jina, vLLM and LiteLLM, and that of Text Embeddings Inference.
Documents: https://docs.cohere.com/reference/rerank, https://jina.ai/reranker,
https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html,
https://huggingface.github.io/text-embeddings-inference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hirag_dist.core.text.normalize import count_noun
from hirag_dist.llm.call import Call, CallContext, PaidReply, PricedByToken
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, EndpointSettings
from hirag_dist.llm.endpoints.openai_replies import UnusableField, parse_usage, text_index
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.types import FloatVector

_PATH = "/rerank"
_RESULTS = "results"
_ROLE = "rerank"


class RerankEndpoint:
    """A reranker over one endpoint.

    The first request has the fields of Cohere. An endpoint that asks for `texts` instead gets those of Text Embeddings
    Inference from then on.
    """

    def __init__(self, settings: EndpointSettings) -> None:
        self.name = settings.model
        self.batch_size = settings.batch_size
        self._client = EndpointClient(settings)
        self._takes_texts = False

    async def request(self, asked: tuple[str, Sequence[str]], /) -> PaidReply[FloatVector]:
        """Return (n_texts,) relevance of each text to a question, larger is better, by one request.

        Args:
            asked: the question, and the texts.

        Raises as `EndpointClient.post`, and UnusableReply where scores are missing from the answer or cannot be read.
        """
        question, texts = asked
        try:
            data = await self._post(question, texts)
        except EndpointRefused as error:
            if self._takes_texts or "texts" not in error.said:
                raise
            self._takes_texts = True
            data = await self._post(question, texts)
        with self._client.unusable():
            scores = parse_scores(data, len(texts))
        n_chars = sum(map(len, texts))
        return PaidReply(scores, parse_usage(data.get("usage"), n_chars, 0).input_tokens, self._client.rate_limits)

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def _post(self, question: str, texts: Sequence[str]) -> dict[str, Any]:
        asked = {"model": self.name, "query": question, "documents": list(texts), "top_n": len(texts)}
        if self._takes_texts:
            asked = {"query": question, "texts": list(texts), "truncate": True}
        return await self._client.post(_PATH, asked, list_key=_RESULTS)


def parse_scores(data: Mapping[str, Any], n_texts: int) -> FloatVector:
    """Return (n_texts,) relevance scores, each at the place that its `index` names.

    >>> parse_scores({"results": [{"index": 1, "relevance_score": 0.5}, {"index": 0, "score": 0.25}]}, 2)
    array([0.25, 0.5 ])

    Raises:
        UnusableField: a score is missing or is no finite number; an `index` names no text, or one text twice.
    """
    items = data.get(_RESULTS, data.get("data"))
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items) or len(items) != n_texts:
        n_items = len(items) if isinstance(items, list) else 0
        raise UnusableField(f"{count_noun(n_items, 'score')} for {count_noun(n_texts, 'text')}")
    if sorted(text_index(item.get("index")) for item in items) != list(range(n_texts)):
        raise UnusableField("scores whose `index` does not say which text they are for")
    scores = np.zeros(n_texts)
    for item in items:
        score = item.get("relevance_score", item.get("score"))
        if isinstance(score, bool) or not isinstance(score, int | float) or not np.isfinite(float(score)):
            raise UnusableField("a score that is no finite number")
        scores[text_index(item["index"])] = score
    return scores


@dataclass(frozen=True)
class PricedReranker(PricedByToken[RerankEndpoint]):
    """A reranker at an endpoint. Implements `llm.call.CallTarget`."""

    operation: ClassVar[str] = "rerank"


RerankCall = Call[tuple[str, Sequence[str]], FloatVector]


class LimitedReranker:
    """Asks a reranker within its limits. Implements `protocols.Reranker`."""

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
        # The endpoint reads the question again with each text.
        tokens = len(texts) * self._count(question) + sum(map(self._count, texts))
        call: RerankCall = Call((question, texts), [self._target], _ROLE, tokens, 2 * tokens, context=self._context)
        return (await self._retried(call)).value
