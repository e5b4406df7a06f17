"""The calls that a whole build has left, and the rate of the latest ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

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
_MIN_CHANGES = 5


class CallRate:
    """The rate of a number that only grows, over the last minute, or over the last few changes where they take longer.

    Attributes:
        per_s: the rate; 0 before the first change.
    """

    def __init__(self) -> None:
        self._noted: deque[tuple[float, int]] = deque()  # (time, number)
        self.per_s = 0.0

    def note(self, now: float, number: int) -> float:
        """Note the number so far, and return the rate.

        Args:
            now: seconds.
        """
        noted = self._noted
        if len(noted) > 2 and noted[-1][1] == noted[-2][1] == number:
            noted.pop()
        noted.append((now, number))
        while len(noted) > 2 and noted[1][0] <= now - _RATE_WINDOW_S and _n_changes(noted) > _MIN_CHANGES:
            noted.popleft()
        begun, before = noted[0]
        if now - begun >= _MIN_RATE_S:
            self.per_s = (number - before) / (now - begun)
        return self.per_s


def _n_changes(noted: Sequence[tuple[float, int]]) -> int:
    return len({number for _, number in noted}) - 1


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

    def on_calls(self, label: str, answered: int, in_flight: int = 0) -> None:
        """Note the usable replies of a running stage; what is in flight is left in any case."""
        stage, begun = self._running
        if stage and stage == _stage_of(label):
            self._left[stage] = max(begun - answered, float(in_flight), 0.0)

    def on_finished(self, label: str) -> None:
        """Note that a stage is done."""
        if _stage_of(label) == _LAST:
            self._left = dict.fromkeys(self._left, 0.0)

    @property
    def calls(self) -> int:
        """The calls that are left."""
        return round(sum(self._left.values()))

    def calls_of(self, label: str) -> int | None:
        """Return the calls that the stage of the estimate has left which a label belongs to; None if there is none."""
        left = self._left.get(_stage_of(label))
        return None if left is None else round(left)


def _stage_of(label: str) -> str:
    return next((stage for begin, stage in _STAGES.items() if label.startswith(begin)), "")


def rounded_calls(calls: int) -> int:
    """Return a number with two significant digits: the estimate has no more."""
    digits = max(len(str(calls)) - 2, 0)
    return round(calls, -digits)
