"""Estimates of the tokens that a call will use, learned from earlier calls of its role."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.types import ChatReply, ChatRequest

_REPLY_TOKENS = 1000  # of a role's first reply
MAX_REPLY_TOKENS = 8192  # of a reply under a spending limit, where the configuration names no limit
_MESSAGE_TOKENS = 4  # around a message, in a chat template; so many again around the whole
_TOKENS_A_BYTE = 0.27
_LEARN = 0.1


@dataclass(slots=True)
class _RoleStatistics:
    """Averages over the calls of a role."""

    n: int = 0
    tokens_a_byte: float = _TOKENS_A_BYTE
    reply_tokens: float = _REPLY_TOKENS  # a unit: a request may hold several
    max_over_count: float = 1.0  # the largest ratio of an endpoint's count of a prompt to the local one


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """The estimated use of one call.

    Attributes:
        expected: tokens, prompt and reply.
        max_input, max_output: tokens at most; no output where only the endpoint's limit says.
        counted: tokens of the prompt by our own count; 0 where it was not counted.
    """

    expected: int
    max_input: int
    max_output: int
    counted: int = 0


class TokenEstimates:
    """Estimated tokens of a call, learned by role.

    Args:
        count_tokens: the tokenizer's count of a text.
        exact: whether prompts are counted, because a spending limit depends on it; without one, counting would cost
            more than the rest of the pool's work.
    """

    def __init__(self, count_tokens: Callable[[str], int], exact: bool) -> None:
        self._count_tokens = count_tokens
        self._exact = exact
        self._roles: dict[str, _RoleStatistics] = {}

    def of(self, request: ChatRequest) -> TokenEstimate:
        """Return the estimate for a call."""
        statistics = self._roles.setdefault(request.role, _RoleStatistics())
        limit = request.max_tokens or 0
        prompt = _bytes(request) * statistics.tokens_a_byte
        each = (
            statistics.reply_tokens if statistics.n else min(_REPLY_TOKENS, prompt)
        )  # many are queued before the first is back
        reply = min(each * max(len(request.packed), 1), limit or math.inf)
        if not self._exact:
            return TokenEstimate(round(prompt + reply), round(prompt), round(reply))
        counted = sum(self._count_tokens(each.content) for each in request.messages)
        counted += _MESSAGE_TOKENS * (len(request.messages) + 1)
        return TokenEstimate(round(counted + reply), math.ceil(counted * statistics.max_over_count), limit, counted)

    def learn(self, request: ChatRequest, estimate: TokenEstimate, reply: ChatReply) -> None:
        """Learn from what a call used."""
        statistics = self._roles.setdefault(request.role, _RoleStatistics())
        statistics.n += 1
        weight = max(1.0 / statistics.n, _LEARN)  # the first replies at full weight
        statistics.reply_tokens += weight * (
            reply.output_tokens / max(len(request.packed), 1) - statistics.reply_tokens
        )
        n_bytes = _bytes(request)
        if n_bytes:
            statistics.tokens_a_byte += weight * (reply.input_tokens / n_bytes - statistics.tokens_a_byte)
        if estimate.counted:
            statistics.max_over_count = max(statistics.max_over_count, reply.input_tokens / estimate.counted)


def _bytes(request: ChatRequest) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        for text in (message.content for message in request.messages)
    )
