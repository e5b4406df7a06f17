"""What a call will use, before it is made: from what earlier calls of its role used."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.types import ChatReply, ChatRequest

_REPLY_TOKENS = 1000  # of a role's first reply
MOST_REPLY_TOKENS = 8192  # of a reply under a spending limit, where the configuration names no limit
_MESSAGE_TOKENS = 4  # around a message, in a chat template; so many again around the whole
_TOKENS_A_BYTE = 0.27
_LEARN = 0.1


@dataclass(slots=True)
class _Seen:
    """What the calls of a role came to."""

    n: int = 0
    tokens_a_byte: float = _TOKENS_A_BYTE
    reply_tokens: float = _REPLY_TOKENS  # a unit: a request may hold several
    most_over_count: float = 1.0  # by how much an endpoint's own count of a prompt passed ours, at most


@dataclass(frozen=True, slots=True)
class TokenEstimate:
    """What one call is thought to use.

    Attributes:
        expected: tokens, prompt and reply.
        most_input, most_output: tokens at most; no output where only the endpoint's limit says.
        counted: tokens of the prompt by our own count; 0 where it was not counted.
    """

    expected: int
    most_input: int
    most_output: int
    counted: int = 0


class TokenEstimates:
    """Tokens of a call, learned by role.

    Args:
        count_tokens: counts a text.
        exact: whether prompts are counted, since a spending limit depends on it; it would otherwise cost more than
            the rest of the pool's work.
    """

    def __init__(self, count_tokens: Callable[[str], int], exact: bool) -> None:
        self._count_tokens = count_tokens
        self._exact = exact
        self._roles: dict[str, _Seen] = {}

    def of(self, request: ChatRequest) -> TokenEstimate:
        """Return what a call will use."""
        seen = self._roles.setdefault(request.role, _Seen())
        limit = request.max_tokens or 0
        prompt = _bytes(request) * seen.tokens_a_byte
        each = seen.reply_tokens if seen.n else min(_REPLY_TOKENS, prompt)  # many are queued before the first is back
        reply = min(each * max(len(request.packed), 1), limit or math.inf)
        if not self._exact:
            return TokenEstimate(round(prompt + reply), round(prompt), round(reply))
        counted = sum(self._count_tokens(each.content) for each in request.messages)
        counted += _MESSAGE_TOKENS * (len(request.messages) + 1)
        return TokenEstimate(round(counted + reply), math.ceil(counted * seen.most_over_count), limit, counted)

    def learn(self, request: ChatRequest, estimate: TokenEstimate, reply: ChatReply) -> None:
        """Take note of what a call used."""
        seen = self._roles.setdefault(request.role, _Seen())
        seen.n += 1
        weight = max(1.0 / seen.n, _LEARN)  # the first replies at full weight
        seen.reply_tokens += weight * (reply.output_tokens / max(len(request.packed), 1) - seen.reply_tokens)
        n_bytes = _bytes(request)
        if n_bytes:
            seen.tokens_a_byte += weight * (reply.input_tokens / n_bytes - seen.tokens_a_byte)
        if estimate.counted:
            seen.most_over_count = max(seen.most_over_count, reply.input_tokens / estimate.counted)


def _bytes(request: ChatRequest) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        for text in (message.content for message in request.messages)
    )
