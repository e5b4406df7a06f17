"""Requests, tokens and calls at a time that a simulated endpoint allows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.testing.simulator.options import SimulatorOptions


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
        self._requests = TokenBucket(options.rpm, options.burst_s, clock) if options.rpm else None
        self._tokens = TokenBucket(options.tpm, options.burst_s, clock) if options.tpm else None
        self._max_concurrent = options.max_concurrent
        self._tells = options.limit_headers
        self._turn_s = max(options.latency_ms / 1000.0, 0.05)
        self.in_flight = 0

    def enter(self, tokens: int) -> LimitExceeded | None:
        """Let a call of so many input tokens in, or return why not. Who was let in has to `leave`."""
        if self._max_concurrent is not None and self.in_flight >= self._max_concurrent:
            said = "Too many concurrent requests" + (f": limit {self._max_concurrent}." if self._tells else ".")
            return LimitExceeded("concurrency", said, self._turn_s)
        if self._tokens is not None and tokens > self._tokens.capacity:
            said = f"Request too large: limit {self._tokens.capacity:.0f} tokens at once, requested {tokens}."
            return LimitExceeded("tokens", said, None)
        for kind, bucket, units in (("requests", self._requests, 1), ("tokens", self._tokens, tokens)):
            wait_s = bucket.wait_s(units) if bucket else 0.0
            if bucket and wait_s > 1e-9:
                said = f"Rate limit reached for {kind} per min"
                if self._tells:
                    said += f": limit {bucket.per_minute:g}. Please try again in {wait_s:.3f}s"
                return LimitExceeded(kind, f"{said}.", wait_s)
        if self._requests:
            self._requests.take(1)
        if self._tokens:
            self._tokens.take(tokens)
        self.in_flight += 1
        return None

    def leave(self) -> None:
        """End a call that was let in."""
        self.in_flight -= 1

    def charge(self, tokens: int) -> None:
        """Take the tokens of a reply, known only now."""
        if self._tokens:
            self._tokens.take(tokens)

    def headers(self) -> dict[str, str]:
        """Return the `x-ratelimit-*` headers of this moment; none where callers have to find the limits."""
        found: dict[str, str] = {}
        if not self._tells:
            return found
        for kind, bucket in (("requests", self._requests), ("tokens", self._tokens)):
            if bucket:
                found[f"x-ratelimit-limit-{kind}"] = f"{bucket.per_minute:.0f}"
                found[f"x-ratelimit-remaining-{kind}"] = str(max(math.floor(bucket.level()), 0))
                found[f"x-ratelimit-reset-{kind}"] = f"{bucket.wait_s(bucket.capacity):.3f}s"
        return found


def retry_headers(denied: LimitExceeded) -> dict[str, str]:
    """Return Retry-After in whole seconds, rounded up, and in milliseconds."""
    if denied.wait_s is None:
        return {}
    return {
        "Retry-After": str(math.ceil(denied.wait_s)),
        "retry-after-ms": str(math.ceil(denied.wait_s * 1000)),
    }
