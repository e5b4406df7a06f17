"""Calls with limits and retries, and models that note what they are asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from hirag_dist.llm.call import PaidReply
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.types import ChatReply, ChatRequest, FloatMatrix, Message
from tests.scripted_model import ScriptedModel


def calls(
    attempts: int = 3, outage_timeout_s: float = 0.5, at_a_time: int = 8, *, sleep: Any = None, **limits: float
) -> RetriedCalls:
    """Calls to the endpoint "e"; keywords are spending limits."""
    coordinator = QuotaCoordinator({"e": EndpointLimits(None, None, at_a_time)}, **limits)  # type: ignore[arg-type]
    policy, own = RetryPolicy(attempts, outage_timeout_s), {} if sleep is None else {"sleep": sleep}
    return RetriedCalls(RateLimiter(coordinator, spending=bool(limits)), policy, **own)


async def at_once(asked: object) -> None:
    """Let other tasks go on, and no time pass."""
    await asyncio.sleep(0)


class Hold:
    """Lets requests wait: `arrived` when one is under way, until `go_on` is set."""

    def __init__(self) -> None:
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    async def __call__(self, asked: object) -> None:
        self.arrived.set()
        await self.go_on.wait()


class Model(ScriptedModel):
    """Answers, after a while, by a function of the request and of how many there were."""

    def __init__(
        self,
        answer: Callable[[ChatRequest, int], ChatReply],
        name: str = "model",
        hold: Callable[[ChatRequest], Awaitable[None]] = at_once,
    ) -> None:
        super().__init__(lambda request: "", name, piece_chars=1)
        self._answer, self._hold = answer, hold

    async def complete(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        number = len(self.requests)
        await self._hold(request)
        return self._answer(request, number)


def named(name: str) -> Model:
    """A model that replies with its name."""
    return Model(lambda request, n: ChatReply(name, input_tokens=10, cached_tokens=4, output_tokens=5), name)


def question(text: object = "hello") -> ChatRequest:
    return ChatRequest("extract", (Message("user", f"question {text}"),), unit="u")


def text_of(reply: ChatReply) -> str:
    return reply.text


def by_length(texts: Sequence[str]) -> FloatMatrix:
    return np.array([[len(text), 1] for text in texts], np.float32)


class Lengths:
    """Embeds a text by its length, a token a character, after doing what a test wants done at each request."""

    name = identity = "lengths"
    dim = 2
    batch_size, batch_tokens = 3, 1000

    def __init__(
        self,
        act: Callable[[list[str]], Awaitable[None] | None] = at_once,
        used: Callable[[Sequence[str]], int | None] = lambda texts: None,
        vectors: Callable[[Sequence[str]], FloatMatrix] = by_length,
    ) -> None:
        self.calls: list[list[str]] = []
        self._act, self._used, self._vectors = act, used, vectors

    def fitted(self, text: str) -> tuple[str, int]:
        return text[:200], min(len(text), 200)

    async def request(self, texts: Sequence[str]) -> PaidReply[FloatMatrix]:
        self.calls.append(list(texts))
        waiting = self._act(list(texts))
        if waiting is not None:
            await waiting
        return PaidReply(self._vectors(texts), self._used(texts))

    async def close(self) -> None:
        pass
