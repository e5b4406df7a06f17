"""How an endpoint has been, as one process saw it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

from hirag_dist.errors import RequestRejected

_LONGEST_WAIT_S = 60.0
DOWN_AFTER = 3  # failures in a row, of an endpoint


@dataclass(slots=True)
class CircuitBreaker:
    """How an endpoint has been, as this process saw it."""

    failures: int = 0  # in a row
    down_since: float = -math.inf
    down_until: float = -math.inf
    answered_at: float = -math.inf
    useless: RequestRejected | None = None  # it refuses our key, has no such model, or no money

    def answered(self, now: float) -> None:
        """Note a reply."""
        self.failures, self.down_until, self.answered_at = 0, -math.inf, now

    def failed(self, now: float, picked_at: float) -> None:
        """Note a failure of a call that chose this endpoint at `picked_at`."""
        if picked_at <= self.down_since:
            return  # all calls in flight fail with an endpoint: it is one outage, not as many
        self.failures += 1
        if self.failures >= DOWN_AFTER:
            self.down_since = now
            self.down_until = now + backoff_s(self.failures - DOWN_AFTER)


def backoff_s(failures: int) -> float:
    """Return how long to leave it alone after so many failures, with jitter."""
    return float(min(0.5 * 2.0 ** min(failures, 10), _LONGEST_WAIT_S) * (0.5 + random.random()))
