"""Token bucket: units per second at an even pace. The clock is passed in; nothing waits here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class GcraBucket:
    """Units a second, evenly (the generic cell rate algorithm): what was not used is kept for `burst_s`, no longer.

    Attributes:
        per_s: None without limit.
    """

    per_s: float | None
    burst_s: float
    _next: float = field(default=-math.inf, init=False)  # when all that was taken would be due at an even pace

    def begin(self, now: float) -> None:
        """Start without credit: an endpoint that was quiet before we came may have been so for another's sake."""
        self._next = now + self.burst_s

    def change(self, now: float, per_s: float) -> None:
        """Go on with another rate: what was taken in advance is due at the new one."""
        room = self.room(now)
        if room < 0:
            self._next = now + self.burst_s - room / per_s
        self.per_s = per_s

    def room(self, now: float) -> float:
        """Return the units that may be taken now; below zero while more was taken than was due."""
        if self.per_s is None:
            return math.inf
        return self.per_s * (now + self.burst_s - max(self._next, now))

    def wait_s(self, now: float, units: float = 1.0) -> float:
        """Return how long until so many units may be taken; more than the burst holds wait for the burst alone."""
        if self.per_s is None:
            return 0.0
        missing = min(units, self.per_s * self.burst_s) - self.room(now)
        return max(missing / self.per_s, 0.0) if missing > 1e-9 else 0.0

    def take(self, now: float, units: float) -> None:
        """Take units, or give some back with a number below zero."""
        if self.per_s is not None:
            self._next = max(self._next, now) + units / self.per_s

    def empty(self, until: float) -> None:
        """Let the first unit be due at a time: the endpoint said so."""
        self._next = max(self._next, until + self.burst_s - 1.0 / self.per_s) if self.per_s else self._next
