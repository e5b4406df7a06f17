"""Circuit breaker: the health of an endpoint, as one process observed it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hirag_dist.errors import ModelError, RequestRejected
from hirag_dist.llm.backoff import backoff_s

MAX_FAILURES = 3  # in a row, after which an endpoint is left alone


@dataclass(slots=True)
class CircuitBreaker:
    """The failures of one endpoint.

    Attributes:
        failures: in a row.
        down_since, down_until: the time during which no call is sent.
        answered_at: time of the last reply.
        max_pause_s: longest pause after a failure.
        error: the last failure.
        rejection: the error with which the endpoint refused the key, the model or further credit; it is not asked
            again.
    """

    failures: int = 0
    down_since: float = -math.inf
    down_until: float = -math.inf
    answered_at: float = -math.inf
    max_pause_s: float = math.inf
    error: ModelError | None = None
    rejection: RequestRejected | None = None

    def answered(self, now: float) -> None:
        """Record a reply."""
        self.failures, self.down_until, self.answered_at = 0, -math.inf, now

    def heard(self, now: float) -> None:
        """Record a sign of life: tokens came, but not the whole of a reply."""
        self.answered_at = max(self.answered_at, now)

    def failed(self, now: float, picked_at: float, error: ModelError) -> None:
        """Record a failure of a call that chose this endpoint at `picked_at`."""
        self.error = error
        if picked_at <= self.down_since:
            return  # all calls in flight fail together: that is one outage
        self.failures += 1
        if self.failures >= MAX_FAILURES:
            self.down_since = now
            self.down_until = now + min(backoff_s(self.failures - MAX_FAILURES), self.max_pause_s)
