"""Calls with limits and retries, and models that count what they are asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.types import ChatReply, ChatRequest, Message
from tests.scripted_model import ScriptedModel


def calls(
    attempts: int = 3, outage_timeout_s: float = 0.5, at_a_time: int = 8, *, sleep: Any = None, **limits: float
) -> RetriedCalls:
    """Calls to the endpoint "e"; keywords are spending limits."""
    coordinator = QuotaCoordinator({"e": EndpointLimits(None, None, at_a_time)}, **limits)  # type: ignore[arg-type]
    policy, own = RetryPolicy(attempts, outage_timeout_s), {} if sleep is None else {"sleep": sleep}
    return RetriedCalls(RateLimiter(coordinator, spending=bool(limits)), policy, **own)


class Model(ScriptedModel):
    """Answers by a function of the request and of how many there were."""

    def __init__(self, answer: Callable[[ChatRequest, int], ChatReply], name: str = "model") -> None:
        super().__init__(lambda request: answer(request, len(self.requests)), name, piece_chars=1)


def named(name: str) -> Model:
    """A model that replies with its name."""
    return Model(lambda request, n: ChatReply(name, input_tokens=10, cached_tokens=4, output_tokens=5), name)


def question(text: object = "hello") -> ChatRequest:
    return ChatRequest("extract", (Message("user", f"question {text}"),), unit="u")


def text_of(reply: ChatReply) -> str:
    return reply.text
