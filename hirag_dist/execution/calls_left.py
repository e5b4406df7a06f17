"""The calls that a whole build has left, and the time that they take at the rate of the last minute."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

# beginning of a stage's label → stage of the estimate
_STAGES = {
    "extract": "extract",
    "claims": "claims",
    "describe": "describe",
    "resolve": "resolve",
    "meta types": "meta types",
    "summarise": "summarise",
    "reports": "reports",
    "chunk vectors": "embed",
    "embed": "embed",
}
_LAST = "reports"
_RATE_WINDOW_S = 60.0
_MIN_RATE_S = 2.0


class CallRate:
    """The replies per minute of a stage, over the last minute."""

    def __init__(self) -> None:
        self._answered: deque[tuple[float, int]] = deque()  # (time, replies)
        self._per_minute = 0.0

    def on_calls(self, now: float, answered: int) -> float:
        """Note the replies so far, and return the rate; 0 where it is not known.

        Args:
            now: seconds.
        """
        self._answered.append((now, answered))
        while self._answered[0][0] < now - _RATE_WINDOW_S:
            self._answered.popleft()
        begun, before = self._answered[0]
        if now - begun >= _MIN_RATE_S:
            self._per_minute = (answered - before) / (now - begun) * 60
        return self._per_minute


class CallsLeft:
    """Calls of a build that are still to be made: those of the estimate, without those of stages that are done."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._left: dict[str, float] = dict(expected)
        self._running: tuple[str, float] = ("", 0.0)  # stage of the estimate, and its calls when the label began

    def on_started(self, label: str, share_left: float) -> None:
        """Note that a stage begins.

        Args:
            share_left: share of its units that are not done.
        """
        stage = _stage_of(label)
        if stage not in self._left:
            return
        order = list(self._left)
        if stage != "embed":
            for earlier in order[: order.index(stage)]:
                self._left[earlier] = 0.0
        self._left[stage] *= share_left
        self._running = (stage, self._left[stage])

    def on_calls(self, label: str, answered: int) -> None:
        """Note the replies of a running stage."""
        stage, begun = self._running
        if stage and stage == _stage_of(label):
            self._left[stage] = max(begun - answered, 0.0)

    def on_finished(self, label: str) -> None:
        """Note that a stage is done."""
        if _stage_of(label) == _LAST:
            self._left = dict.fromkeys(self._left, 0.0)

    @property
    def calls(self) -> int:
        """The calls that are left."""
        return round(sum(self._left.values()))

    def describe(self, calls_per_minute: float) -> str:
        """Return the calls and the time left; empty where none is known.

        >>> CallsLeft({"extract": 1200, "reports": 300}).describe(100.0)
        'about 1,500 calls and 15 min left'
        """
        if not self.calls:
            return ""
        calls = f"about {_rounded(self.calls):,} {'call' if self.calls == 1 else 'calls'}"
        if not calls_per_minute:
            return f"{calls} left"
        minutes = self.calls / calls_per_minute
        time = f"{minutes / 60:.1f} h" if minutes >= 90 else f"{minutes:.0f} min" if minutes >= 1.5 else "a minute"
        return f"{calls} and {time} left"


def _stage_of(label: str) -> str:
    return next((stage for begin, stage in _STAGES.items() if label.startswith(begin)), "")


def _rounded(calls: int) -> int:
    """Return a number with two significant digits: the estimate has no more."""
    digits = max(len(str(calls)) - 2, 0)
    return round(calls, -digits)
