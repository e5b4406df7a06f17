"""Storms of 429: for a while everything is refused, whatever the limits say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.testing.simulator.fault_plan import draw
from hirag_dist.testing.simulator.limits import LimitExceeded
from hirag_dist.testing.simulator.options import SimulatorOptions

_MAX_CALLS = 20
_MIN_S, _MAX_S = 0.3, 3.0
_CALLS_END_S = 5.0  # a storm of calls ends by itself, or a caller that backs off would wait for calls that never come
_SAID = "The server is overloaded: too many requests at this time. Please try again later."


@dataclass(slots=True)
class _Storm:
    calls_left: int | None  # None: it goes by time
    ends: float
    tells: bool


class Storms:
    """Draws storms by seed and the number of the call that would begin one.

    A storm lasts for 2 to 20 calls or for 0.3 to 3 seconds, and half of them say when to come back.

    Args:
        options: `storm_rate` is the chance of a call in fair weather to begin one; `seed`.
        clock: seconds, monotonic.
    """

    def __init__(self, options: SimulatorOptions, clock: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._storm: _Storm | None = None
        self._n_fair = 0

    def denies(self) -> LimitExceeded | None:
        """Return the refusal that a call gets now, or None."""
        if not self._options.storm_rate:
            return None
        now = self._clock()
        storm = self._storm
        if storm is None or now >= storm.ends or storm.calls_left == 0:
            storm = self._storm = self._begun(now)
            if storm is None:
                return None
        if storm.calls_left is not None:
            storm.calls_left -= 1
        wait_s = (storm.ends - now if storm.calls_left is None else 1.0) if storm.tells else None
        return LimitExceeded("requests", _SAID, wait_s)

    def _begun(self, now: float) -> _Storm | None:
        number = self._n_fair
        self._n_fair += 1

        def drawn(name: str) -> float:
            return draw(self._options.seed, "storm", number, name)

        if drawn("begins") >= self._options.storm_rate:
            return None
        tells, length = drawn("tells") < 0.5, drawn("length")
        if drawn("kind") < 0.5:
            return _Storm(2 + int(length * (_MAX_CALLS - 1)), now + _CALLS_END_S, tells)
        return _Storm(None, now + _MIN_S + length * (_MAX_S - _MIN_S), tells)
