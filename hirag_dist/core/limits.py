"""Rate arithmetic of one endpoint. The clock is passed in; nothing waits here."""

from __future__ import annotations

from dataclasses import dataclass, field

_MINUTE = 60.0


@dataclass(slots=True)
class Allowance:
    """Requests and tokens a minute, and calls at a time, spread evenly (a leaky bucket with a short burst).

    Attributes:
        rpm: requests a minute, None without limit.
        tpm: tokens a minute, None without limit.
        max_concurrent: calls in flight.
        burst_s: how far ahead of an even pace a quiet endpoint may be used.
    """

    rpm: float | None
    tpm: float | None
    max_concurrent: int
    burst_s: float = 1.0
    _next_request: float = field(default=0.0, init=False)
    _next_token: float = field(default=0.0, init=False)
    _paused_until: float = field(default=0.0, init=False)
    _in_flight: int = field(default=0, init=False)

    def wait_s(self, now: float) -> float | None:
        """Return how long a call must wait, 0.0 for not at all, None until another call ends."""
        if self._in_flight >= self.max_concurrent:
            return None
        free = max(self._next_request, self._next_token) - self.burst_s
        return max(free - now, self._paused_until - now, 0.0)

    def take(self, now: float, tokens: int) -> None:
        """Begin a call that will use about `tokens`."""
        self._in_flight += 1
        if self.rpm is not None:
            self._next_request = max(self._next_request, now) + _MINUTE / self.rpm
        if self.tpm is not None:
            self._next_token = max(self._next_token, now) + tokens * _MINUTE / self.tpm

    def settle(self, reserved: int, used: int) -> None:
        """End a call: put right what it was thought to use."""
        self._in_flight -= 1
        if self.tpm is not None:
            self._next_token += (used - reserved) * _MINUTE / self.tpm

    def pause(self, until: float) -> None:
        """Begin no call before a time: the endpoint asked for it."""
        self._paused_until = max(self._paused_until, until)
