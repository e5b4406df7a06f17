"""Options of a simulated endpoint, and what they make of a call: limits and faults."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from hirag_dist.core.prompts.templates import BAR, DONE, FIELD
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.errors import ConfigError
from hirag_dist.types import ChatReply

FAULT_RATES = ("fail_rate", "hang_rate", "malformed_rate", "truncate_rate")  # exclude each other


@dataclass(frozen=True, slots=True)
class SimulatorOptions:
    """Address, latency, limits and faults of the endpoint.

    Attributes:
        listen: host:port; port 0 takes a free one.
        latency_ms: mean time that a reply takes; the model's own work counts as part of it.
        jitter: 0 to 1; share of latency_ms by which a call may take more or less, drawn by (seed, request, attempt).
        rpm: requests a minute over both kinds of call, or None for no limit.
        tpm: tokens a minute, in and out, or None.
        burst_s: how many seconds of a limit a rested endpoint grants at once (OpenAI: a minute's).
        max_concurrent: calls at a time, or None.
        limit_headers: whether replies tell the limits (x-ratelimit-*, Retry-After) or callers have to find them.
        fail_rate: share of calls that get a 500, 502, 503 or 529.
        malformed_rate: share of chat replies whose text is damaged as real models do it.
        truncate_rate: share of chat replies that are cut, with finish_reason "length".
        hang_rate: share of calls that are not answered until the caller goes.
        seed: Seed of all random draws and of the vectors.

    Raises:
        ConfigError: a value is out of its range.
    """

    listen: str = "127.0.0.1:8000"
    latency_ms: float = 0.0
    jitter: float = 0.0
    rpm: float | None = None
    tpm: float | None = None
    burst_s: float = 60.0
    max_concurrent: int | None = None
    limit_headers: bool = True
    fail_rate: float = 0.0
    malformed_rate: float = 0.0
    truncate_rate: float = 0.0
    hang_rate: float = 0.0
    seed: int = 0
    dim: int = 384

    def __post_init__(self) -> None:
        if self.latency_ms < 0 or not 0 <= self.jitter <= 1:
            raise ConfigError("simulate-llm: latency_ms must be at least 0 and jitter from 0 to 1")
        limits = {"rpm": self.rpm, "tpm": self.tpm, "max_concurrent": self.max_concurrent, "burst_s": self.burst_s}
        for name, value in limits.items():
            if value is not None and value <= 0:
                raise ConfigError(f"simulate-llm: {name} must be above 0, got {value:g}")
        for name in FAULT_RATES:
            rate = getattr(self, name)
            if not 0 <= rate <= 1:
                raise ConfigError(f"simulate-llm: {name} is a share from 0 to 1, got {rate:g}")
        if sum(getattr(self, name) for name in FAULT_RATES) > 1 + 1e-9:
            raise ConfigError(
                f"simulate-llm: a call gets one fault at most, so {', '.join(FAULT_RATES)} together must not pass 1"
            )
        self.address()

    def address(self) -> tuple[str, int]:
        """Return (host, port). Raises ConfigError when `listen` is no host:port."""
        host, _, port = self.listen.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65535:
            raise ConfigError(f"simulate-llm: listen must be host:port, got {self.listen!r}")
        return host.strip("[]"), int(port)


@dataclass(frozen=True, slots=True)
class LimitExceeded:
    """Why a call is not let in. `wait_s` is None where waiting will not help."""

    kind: str
    message: str
    wait_s: float | None


class TokenBucket:
    """A token bucket: holds `capacity` units, refilled at `per_minute`; it may be overdrawn after the fact.

    Args:
        per_minute: units.
        burst_s: seconds of refill that it holds at most; at least one unit.
        clock: seconds, monotonic.
    """

    def __init__(self, per_minute: float, burst_s: float, clock: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self.capacity = max(per_minute * burst_s / 60.0, 1.0)
        self._clock = clock
        self._level = self.capacity
        self._at = clock()

    def level(self) -> float:
        """Return the current level; below zero when overdrawn."""
        now = self._clock()
        self._level = min(self.capacity, self._level + (now - self._at) * self.per_minute / 60.0)
        self._at = now
        return self._level

    def wait_s(self, units: float) -> float:
        """Return the seconds until it holds so many units; 0.0 when it does now."""
        return max(units - self.level(), 0.0) * 60.0 / self.per_minute

    def take(self, units: float) -> None:
        """Take units out, whether they are there or not."""
        self._level = self.level() - units


class SimulatedLimits:
    """Lets calls in, or says why not, as OpenAI's limits do."""

    def __init__(self, options: SimulatorOptions, clock: Callable[[], float]) -> None:
        limits = {"requests": options.rpm, "tokens": options.tpm}
        self._buckets = {kind: TokenBucket(rate, options.burst_s, clock) for kind, rate in limits.items() if rate}
        self._max_concurrent = options.max_concurrent
        self._tells = options.limit_headers
        self._turn_s = max(options.latency_ms / 1000.0, 0.05)
        self.in_flight = 0

    def enter(self, tokens: int) -> LimitExceeded | None:
        """Let a call of so many input tokens in, or return why not. Who was let in has to `leave`."""
        if self._max_concurrent is not None and self.in_flight >= self._max_concurrent:
            said = "Too many concurrent requests" + (f": limit {self._max_concurrent}." if self._tells else ".")
            return LimitExceeded("concurrency", said, self._turn_s)
        most = self._buckets["tokens"].capacity if "tokens" in self._buckets else math.inf
        if tokens > most:
            said = f"Request too large: limit {most:.0f} tokens at once, requested {tokens}."
            return LimitExceeded("tokens", said, None)
        units = {"requests": 1, "tokens": tokens}
        for kind, bucket in self._buckets.items():
            wait_s = bucket.wait_s(units[kind])
            if wait_s > 1e-9:
                said = f"Rate limit reached for {kind} per min"
                if self._tells:
                    said += f": limit {bucket.per_minute:g}. Please try again in {wait_s:.3f}s"
                return LimitExceeded(kind, f"{said}.", wait_s)
        for kind, bucket in self._buckets.items():
            bucket.take(units[kind])
        self.in_flight += 1
        return None

    def leave(self) -> None:
        """End a call that was let in."""
        self.in_flight -= 1

    def charge(self, tokens: int) -> None:
        """Take the tokens of a reply, known only now."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(tokens)

    def headers(self) -> dict[str, str]:
        """Return the `x-ratelimit-*` headers of this moment; none where callers have to find the limits."""
        found: dict[str, str] = {}
        if not self._tells:
            return found
        for kind, bucket in self._buckets.items():
            found[f"x-ratelimit-limit-{kind}"] = f"{bucket.per_minute:.0f}"
            found[f"x-ratelimit-remaining-{kind}"] = str(max(math.floor(bucket.level()), 0))
            found[f"x-ratelimit-reset-{kind}"] = f"{bucket.wait_s(bucket.capacity):.3f}s"
        return found


FAIL, HANG, MALFORMED, TRUNCATE = "fail", "hang", "malformed", "truncate"
CHAT_FAULTS = frozenset({FAIL, HANG, MALFORMED, TRUNCATE})
EMBEDDING_FAULTS = frozenset({FAIL, HANG})


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Course of one call.

    Attributes:
        delay_s: how long the reply takes.
        fault: what goes wrong, or None.
        form: [0, 1), chooses among the forms of the fault.
        share: [0, 1), where in the reply it strikes.
    """

    delay_s: float
    fault: str | None = None
    form: float = 0.0
    share: float = 0.0


def plan_of(options: SimulatorOptions, request: str, attempt: int, kinds: Collection[str]) -> FaultPlan:
    """Return how a call goes.

    Args:
        request: hash of what is asked.
        attempt: 0 the first time that this is asked, then 1, 2, ….
        kinds: the faults that such a call can have; another that is drawn is none.
    """
    share = 0.0
    if options.jitter:
        share = options.jitter * (2.0 * draw(options.seed, request, attempt, "latency") - 1.0)
    delay_s = options.latency_ms / 1000.0 * (1.0 + share)
    drawn, edge = draw(options.seed, request, attempt, "fault"), 0.0  # one draw, so that each has exactly its share
    for name in FAULT_RATES:
        edge += getattr(options, name)
        if drawn < edge:
            fault = name.removesuffix("_rate")
            if fault in kinds:
                form, place = (draw(options.seed, request, attempt, name) for name in ("form", "share"))
                return FaultPlan(delay_s, fault, form, place)
            break
    return FaultPlan(delay_s)


def draw(seed: int, request: str, attempt: int, name: str) -> float:
    """Return a number in [0, 1) that depends on all arguments and nothing else."""
    digest = hashlib.sha256(f"{seed}/{request}/{attempt}/{name}".encode()).digest()
    return int.from_bytes(digest[:7], "big") / 2**56


_MARKUP = re.compile(r"<\|[^>]*>|[{}\[\]<>|`#\"]+")
_REFUSALS = (
    "I'm sorry, but I can't help with that.",
    "I cannot assist with this request.",
    "As an AI language model, I am not able to process this text.",
)


def truncated(reply: ChatReply, share: float) -> ChatReply:
    """Return a reply that the token limit cut off, after a tenth to nine tenths of its characters."""
    kept = round(len(reply.text) * (0.1 + 0.8 * share))
    return replace(reply, text=reply.text[: max(kept, 1)], finish_reason="length")


def damaged(reply: ChatReply, form: float, share: float) -> ChatReply:
    """Return a reply that is in no requested form; its finish_reason is "stop", or "refusal".

    Args:
        form: [0, 1), chooses among the damages that the reply's form allows: a plain text has none that it could miss.
        share: [0, 1), chooses the wording or the place.
    """
    ways = ["thinking", "empty", "refusal"]
    is_json = _is_json(reply.text)
    if is_json:
        ways = ["prose", "broken JSON", *ways]
    elif reply.text.endswith(DONE):
        ways = ["prose", "other separators", *ways]
    text = _damaged_text(reply.text, _chosen(ways, form), share)
    return replace(reply, text=text, finish_reason="refusal" if is_json and text in _REFUSALS else "stop")


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _damaged_text(text: str, way: str, share: float) -> str:
    if way == "thinking":
        thought = f"Okay, I need to read this closely. {_words(text, 600)} Let me check again."
        return f"<think>\n{thought}\n" + ("</think>\n" if share < 0.5 else "")
    if way == "empty":
        return _chosen(("", "\n", "  \n\n"), share)
    if way == "refusal":
        return _chosen(_REFUSALS, share)
    if way == "broken JSON":
        if share < 0.4:
            return text.rstrip("]} \n")
        if share < 0.7:
            return repr(json.loads(text))  # keys in single quotes
        return re.sub(r'":\s*("|\[|\{|[\d\-tfn])', r'": as "stated" \1', text, count=1)
    if way == "other separators":
        separator = _chosen((" :: ", "\t", "<||>", "; "), share)
        separated = text.replace(DONE, "").replace(FIELD if FIELD in text else BAR, separator).strip()
        if separated:
            return separated
    openings = ("Here is what I found.", "Certainly! The text can be described as follows.", "Overview:")
    return f"{_chosen(openings, share)}\n\n{_words(text, 1200)}"


def _words(text: str, n_chars: int) -> str:
    """Return the words of a reply's records without any markup."""
    said = one_line(_MARKUP.sub(" ", text.replace(FIELD, " ")))
    return shorten(said, n_chars) or "The passage mentions nothing that could be listed here."


def _chosen(options: Sequence[str], share: float) -> str:
    return options[int(share * len(options))]
