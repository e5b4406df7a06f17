"""Usage of models: calls, tokens and cost, estimated before a call and counted after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hirag_dist.types import ChatReply, ChatRequest

if TYPE_CHECKING:
    import pyarrow as pa


_COSTS = ("cost_usd", "sent_cost_usd")


@dataclass(slots=True)
class ModelUsage:
    """Sums over calls of one role, model and endpoint. Tokens and cost count replies from the ledger: they were paid.

    Attributes:
        calls: replies, from the ledger or just sent for.
        rejected: replies that their parser refused.
        rate_limited, failed: calls that brought no reply, by 429 and otherwise; they were made again.
        cost_usd: NaN where the price of a reply is not known.
        sent_tokens, sent_cost_usd: of the replies that were just sent for.
        sent_cached_tokens, sent_output_tokens: tokens among these.
        sent_rejected: refused ones among the replies that were just sent for.
    """

    calls: int = 0
    ledger_hits: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0
    rejected: int = 0
    rate_limited: int = 0
    failed: int = 0
    sent_cost_usd: float = 0.0
    sent_tokens: int = 0
    sent_cached_tokens: int = 0
    sent_output_tokens: int = 0
    sent_rejected: int = 0

    def add(self, other: ModelUsage) -> None:
        """Add another's sums to these."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)

    def sent(self) -> ModelUsage:
        """Return the sums of the calls that were just sent, without replies from the ledger."""
        return ModelUsage(
            calls=self.calls - self.ledger_hits,
            input_tokens=self.sent_tokens - self.sent_output_tokens,
            cached_tokens=self.sent_cached_tokens,
            output_tokens=self.sent_output_tokens,
            cost_usd=self.sent_cost_usd,
            rejected=self.sent_rejected,
            rate_limited=self.rate_limited,
            failed=self.failed,
        )


@dataclass(slots=True)
class UsageMeter:
    """Use by (role, model, endpoint)."""

    uses: dict[tuple[str, str, str], ModelUsage] = field(default_factory=dict)

    def use(self, role: str, model: str, endpoint: str) -> ModelUsage:
        """Return the sums to add to."""
        return self.uses.setdefault((role, model, endpoint), ModelUsage())

    def count(self, role: str, model: str, endpoint: str, reply: ChatReply, cost_usd: float, from_ledger: bool) -> None:
        """Count one reply."""
        use = self.use(role, model, endpoint)
        use.calls += 1
        use.input_tokens += reply.input_tokens
        use.cached_tokens += reply.cached_tokens
        use.output_tokens += reply.output_tokens
        use.cost_usd += cost_usd
        if from_ledger:
            use.ledger_hits += 1
        else:
            use.sent_cost_usd += cost_usd
            use.sent_tokens += reply.input_tokens + reply.output_tokens
            use.sent_cached_tokens += reply.cached_tokens
            use.sent_output_tokens += reply.output_tokens

    def sent(self) -> UsageMeter:
        """Return the use by the calls that were just sent, without replies from the ledger."""
        found = ((key, use.sent()) for key, use in self.uses.items())
        return UsageMeter({key: use for key, use in found if use.calls or use.rate_limited or use.failed})

    def spent(self) -> tuple[int, float]:
        """Return (tokens, US dollars) of the replies that were just sent for."""
        uses = self.uses.values()
        known = (use.sent_cost_usd for use in uses if not math.isnan(use.sent_cost_usd))
        return sum(use.sent_tokens for use in uses), math.fsum(known)

    def sent_sums(self) -> dict[str, Any]:
        """Return the sums of the calls that a run itself sent, without replies from the ledger.

        `usd` is None where the price of a call is not known.
        """
        total = ModelUsage()
        for use in self.uses.values():
            total.add(use)
        return {
            "calls": total.calls - total.ledger_hits,
            "tokens": total.sent_tokens,
            "usd": known_cost(total.sent_cost_usd),
            "rate_limited": total.rate_limited,
            "failed": total.failed,
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return the sums as plain rows, sorted; a cost that is not known is None."""
        return [
            {"role": role, "model": model, "endpoint": endpoint}
            | {name: known_cost(value) if name in _COSTS else value for name, value in asdict(use).items()}
            for (role, model, endpoint), use in sorted(self.uses.items())
        ]

    @classmethod
    def from_rows(cls, rows: list[dict[str, Any]]) -> UsageMeter:
        """Return a meter from what `rows` gave."""
        meter = cls()
        for row in rows:
            values = {key: value for key, value in row.items() if key not in ("role", "model", "endpoint", "stage")}
            values |= {name: math.nan for name in _COSTS if name in values and values[name] is None}
            meter.use(row["role"], row["model"], row["endpoint"]).add(ModelUsage(**values))
        return meter

    def add(self, other: UsageMeter) -> None:
        """Add another meter's sums to these."""
        for key, use in other.uses.items():
            self.use(*key).add(use)


def known_cost(usd: float | None) -> float | None:
    """Return a cost, None for NaN: the cost of calls whose price is not known.

    >>> known_cost(float("nan")), known_cost(0.5)
    (None, 0.5)
    """
    return None if usd is None or math.isnan(usd) else usd


def total_cost(costs: Iterable[float | None]) -> float | None:
    """Return the sum of costs, None where one of them is not known.

    >>> total_cost([0.5, 0.25]), total_cost([0.5, None])
    (0.75, None)
    """
    return known_cost(math.fsum(math.nan if usd is None else usd for usd in costs))


def usage_rows(usage: pa.Table) -> list[dict[str, Any]]:
    """Return rows of the table USAGE; a cost that is not known is None."""
    rows: list[dict[str, Any]] = usage.to_pylist()
    return [row | {"cost_usd": known_cost(row["cost_usd"])} for row in rows]


def added(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of USAGE with those of one stage, role, model and endpoint added up."""
    stages: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        stages.setdefault(row["stage"], []).append(dict(row))
    return [
        {"stage": stage} | {name: value for name, value in row.items() if not name.startswith("sent_")}
        for stage, own in stages.items()
        for row in UsageMeter.from_rows(own).rows()
    ]


def dollars(value: float | None) -> str:
    """Return an amount as text.

    >>> dollars(0.00123), dollars(None)
    ('$0.0012', 'unknown')
    """
    if value is None or math.isnan(value):
        return "unknown"
    return f"${value:,.2f}" if value >= 1 or value == 0 else f"${value:.4f}"


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
        # Many are queued before the first is back.
        each = statistics.reply_tokens if statistics.n else min(_REPLY_TOKENS, prompt)
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


def prompt_chars(request: ChatRequest) -> int:
    """Return the characters of a request's messages."""
    return sum(len(message.content) for message in request.messages)


def _bytes(request: ChatRequest) -> int:
    return sum(
        len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
        for text in (message.content for message in request.messages)
    )
