"""Progress of a build as plain values: its phases, the calls of the one that runs, and the time that is left."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    Publishing,
    StageFailedEvent,
    StageFinished,
    StageStarted,
    TaskFinished,
    UsageBill,
)
from hirag_dist.llm.limits.protocol import CallTotals

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

    def note(self, now: float, number: int) -> None:
        """Note the number so far, at a time in seconds."""
        noted = self._noted
        if len(noted) > 2 and noted[-1][1] == noted[-2][1] == number:
            noted.pop()
        noted.append((now, number))
        while len(noted) > 2 and noted[1][0] <= now - _RATE_WINDOW_S:
            if len({number for _, number in noted}) <= _MIN_CHANGES + 1:
                break
            noted.popleft()
        begun, before = noted[0]
        if now - begun >= _MIN_RATE_S:
            self.per_s = (number - before) / (now - begun)


class CallsLeft:
    """Calls of a build that are still to be made: those of the estimate, without those of stages that are done."""

    def __init__(self, expected: Mapping[str, int]) -> None:
        self._left: dict[str, float] = dict(expected)
        self._running: tuple[str, float] = ("", 0.0)  # stage of the estimate, and its calls when the label began

    def on_started(self, label: str, share_left: float) -> None:
        """Note that a stage begins, of whose units a share is left to do."""
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


PHASES = ("read", "extract", "entities", "hierarchy", "communities", "publish")
_STARTS = {  # beginning of a stage's label → phase; stages in between belong to the phase that runs
    "extract": "extract",
    "propose pairs": "entities",
    "merge entities": "entities",
    "claims": "entities",
    "embed layer 0": "entities",
    "chunk vectors": "entities",
    "meta types": "hierarchy",
    "cluster": "hierarchy",
    "summarise": "hierarchy",
    "graph": "communities",
    "communities": "communities",
    "report": "communities",
}


@dataclass(slots=True)
class PhaseProgress:
    """One phase of a build.

    Attributes:
        begun_at, ended_at: seconds; None before.
        label: the stage that runs, or ran last.
        units, units_done, units_kept: units of that stage; `units_kept` were done by an earlier run.
        is_new: whether a stage of the phase ran; False while all of its results are from an earlier run.
        has_ended_stage: whether the phase had a stage that ended, in this run or an earlier one.
        calls: of this run in this phase so far.
    """

    name: str
    begun_at: float | None = None
    ended_at: float | None = None
    label: str = ""
    units: int = 0
    units_done: int = 0
    units_kept: int = 0
    is_new: bool = False
    has_ended_stage: bool = False
    calls: CallTotals = field(default_factory=CallTotals)


class BuildProgress:
    """A listener of a build that keeps its progress.

    Attributes:
        phases: in order; without names in advance, one for each stage that begins.
        current: the phase that runs; None before the first.
    """

    def __init__(self, names: Sequence[str] = PHASES, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin before the first phase; without names each stage is a phase."""
        self.phases = [PhaseProgress(name) for name in names]
        self.current: PhaseProgress | None = None
        self._has_names = bool(names)
        self._clock = clock
        self._bill = UsageBill()
        self._before_phase = CallTotals()  # of this run
        self._before_stage = CallTotals()
        self._left: CallsLeft | None = None
        self._replies, self._tokens = CallRate(), CallRate()
        self._active_s = 0.0  # time in which stages waited for calls
        self._polled_at = 0.0

    def __call__(self, event: object) -> None:
        """Take an event."""
        self._bill(event)
        match event:
            case CallsExpected():
                self._left = CallsLeft(event.calls)
            case StageStarted():
                self._on_started(event)
            case TaskFinished():
                if self.current is not None:
                    self.current.units_done += event.n_rows
            case CallsProgress():
                self._on_calls(event)
            case StageFinished():
                self._on_finished(event)
            case StageFailedEvent():
                self._take_bill()
            case Publishing():
                self._enter("publish")

    @property
    def sent(self) -> CallTotals:
        """The calls of this run, as far as they are known."""
        phase = CallTotals() if self.current is None else self.current.calls
        return self._before_phase.plus(phase)

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of the latest replies; 0 before the first."""
        return self._tokens.per_s

    @property
    def expected_calls(self) -> int | None:
        """Calls that the running stage has left, by the estimate; None if they are not known."""
        return None if self._left is None or self.current is None else self._left.calls_of(self.current.label)

    @property
    def left(self) -> tuple[int | None, float | None]:
        """Calls and seconds that the whole build has left; None for what is not known.

        Seconds are those of the calls, at the rate of the latest replies; not known before the first reply.
        """
        if self._left is None:
            return None, None
        calls = self._left.calls
        return calls, calls / self._replies.per_s if self._replies.per_s else None

    def end(self) -> None:
        """End the running phase: the build is over."""
        if self.current is not None and self.current.ended_at is None:
            self.current.ended_at = self._clock()

    def _on_started(self, event: StageStarted) -> None:
        phase = self._enter(self._phase_of(event.label))
        phase.label, phase.units, phase.units_done = event.label, event.n_rows, event.n_rows_done
        phase.units_kept, phase.is_new = event.n_rows_done, True
        self._before_stage, self._polled_at = phase.calls, self._clock()
        self._note_rates()
        if self._left is not None:
            self._left.on_started(event.label, 1 - event.n_rows_done / max(event.n_rows, 1))

    def _on_calls(self, event: CallsProgress) -> None:
        if self.current is None or event.label != self.current.label:
            return
        now, before, stage = self._clock(), self._before_stage, event.calls
        self._active_s += now - self._polled_at
        self._polled_at = now
        self.current.calls = before.plus(stage)
        self._note_rates()
        if self._left is not None:
            self._left.on_calls(event.label, stage.answered - stage.refused + stage.found, stage.in_flight)

    def _note_rates(self) -> None:
        self._replies.note(self._active_s, self.sent.answered)
        self._tokens.note(self._active_s, self.sent.tokens)

    def _on_finished(self, event: StageFinished) -> None:
        phase = self._enter(self._phase_of(event.label))
        phase.has_ended_stage = True
        if not event.reused:
            phase.units_done = phase.units
            self._take_bill()
        if self._left is not None:
            self._left.on_finished(event.label)

    def _take_bill(self) -> None:
        """Count the calls of the running phase by the bill: the last poll may have missed some."""
        phase = self.current
        if phase is not None:
            sent = self._bill.sent.sent_sums()
            before = self._before_phase
            phase.calls = replace(
                phase.calls,
                answered=max(sent["calls"] - before.answered, phase.calls.answered),
                tokens=max(sent["tokens"] - before.tokens, phase.calls.tokens),
                usd=max((sent["usd"] or 0.0) - before.usd, phase.calls.usd),
                limited=max(sent["rate_limited"] - before.limited, phase.calls.limited),
                in_flight=0,
                pause_s=0.0,
            )

    def _phase_of(self, label: str) -> str:
        if not self._has_names:
            return label
        return next((phase for start, phase in _STARTS.items() if label.startswith(start)), "")

    def _enter(self, name: str) -> PhaseProgress:
        """Return the phase of this name, or a later one that runs already; the phases before it are over."""
        if not self._has_names and (self.current is None or self.current.name != name):
            self.phases.append(PhaseProgress(name))
        names = [phase.name for phase in self.phases]
        running = -1 if self.current is None else self.phases.index(self.current)
        wanted = names.index(name, max(running, 0)) if name in names[max(running, 0) :] else max(running, 0)
        phase = self.phases[wanted]
        if phase is not self.current:
            now = self._clock()
            if self.current is None:  # the calls that asked endpoints what they can
                sent = self._bill.sent.sent_sums()
                self._before_phase = CallTotals(sent["calls"], sent["tokens"], sent["usd"] or 0.0, sent["rate_limited"])
            else:
                self._before_phase = self.sent
            self.end()
            for passed in self.phases[running + 1 : wanted]:
                passed.begun_at = passed.ended_at = now
            phase.begun_at = now
            self.current = phase
        return phase
