"""Progress of a build: a bar per stage on a terminal, lines on stderr elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from hirag_dist.cli._output import err, short
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.execution.calls_left import CallRate, CallsLeft
from hirag_dist.execution.events import (
    CallsExpected,
    CallsProgress,
    ExecutorStarting,
    KernelsResolved,
    StageFinished,
    StageStarted,
    TaskFinished,
)
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter, dollars, total_cost

logger = logging.getLogger(__name__)

LINE_INTERVAL_S = 30.0  # between two lines of a running stage where there is no terminal
MIN_LINE_S = 1.0  # a stage without a call that took less gets no line


class ProgressBars:
    """Progress of a build: bars on a terminal, one per stage, lines on stderr elsewhere.

    A bar shows units (of tasks that are done) and the calls of this run by reply: calls and calls per minute, tokens,
    cost, 429s, and how long an endpoint asked to wait. Elsewhere a line is printed for each stage that has run and
    called a model or took a second, and every 30 s while one runs.
    """

    def __init__(self, wanted: bool, console: Console = err, clock: Callable[[], float] = time.monotonic) -> None:
        """Prepare.

        Args:
            wanted: False shows nothing.
        """
        self._progress = Progress(
            TextColumn("{task.description:<14}"),
            BarColumn(bar_width=8),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", justify="right"),
            TextColumn("{task.fields[spent]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=not (wanted and console.is_terminal),
        )
        self._prints_lines = wanted and not console.is_terminal
        self._clock = clock
        self._printed_at = clock()
        self._stages: dict[str, _StageProgress] = {}
        self._left: CallsLeft | None = None
        self._left_line: TaskID | None = None

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: object) -> None:
        """Show an event."""
        match event:
            case ExecutorStarting():
                self._say("starting Ray" if event.name == "ray" else f"starting {event.name}")
            case CallsExpected():
                self._left = CallsLeft(event.calls)
            case StageStarted():
                self._on_started(event)
            case TaskFinished():
                self._stages[event.label].done += event.n_rows
                self._progress.update(self._stages[event.label].line, advance=event.n_rows)
            case CallsProgress():
                self._on_calls(event)
            case KernelsResolved():
                logger.info("kernels: %s (of a worker with a GPU)", event.name)
            case StageFinished():
                self._on_finished(event)

    def _on_started(self, event: StageStarted) -> None:
        line = self._progress.add_task(event.label, total=max(event.n_rows, 1), completed=event.n_rows_done, spent="")
        self._stages[event.label] = _StageProgress(line, event.n_rows, event.n_rows_done)
        if self._left is not None:
            self._left.on_started(event.label, 1 - event.n_rows_done / max(event.n_rows, 1))

    def _on_calls(self, event: CallsProgress) -> None:
        stage = self._stages[event.label]
        spent = stage.describe(self._clock(), event.calls)
        left = self._describe_left(event, stage)
        self._progress.update(stage.line, spent=spent)
        if self._clock() - self._printed_at >= LINE_INTERVAL_S:
            self._print(
                f"{event.label}: {stage.done:,} of {count_noun(stage.n_rows, 'unit')}, {spent or 'no call yet'}{left}"
            )

    def _describe_left(self, event: CallsProgress, stage: _StageProgress) -> str:
        """Return the calls and time left of the whole build, and show them below the bars."""
        if self._left is None:
            return ""
        self._left.on_calls(event.label, event.calls.answered)
        left = self._left.describe(stage.per_minute)
        if self._left_line is None and left:
            self._left_line = self._progress.add_task("whole build", total=None, spent=left)
        elif self._left_line is not None:
            self._progress.update(self._left_line, spent=left)
        return f"; {left}" if left else ""

    def _on_finished(self, event: StageFinished) -> None:
        if self._left is not None:
            self._left.on_finished(event.label)
            if self._left_line is not None and not self._left.calls:
                self._progress.remove_task(self._left_line)
                self._left_line = None
        logger.info(
            "%s: %s",
            event.label,
            "kept" if event.reused else f"{count_noun(event.n_rows, 'row')}, {event.seconds:.2f} s",
        )
        if event.reused:
            return
        spent = spent_line(event.usage)
        total = max(event.n_rows, 1)
        self._progress.update(self._stages[event.label].line, completed=total, total=total, spent=spent)
        if spent or event.seconds >= MIN_LINE_S:
            parts = [count_noun(event.n_rows, "unit"), *([spent] if spent else []), f"{event.seconds:.1f} s"]
            self._print(f"{event.label}: {', '.join(parts)}")

    def _say(self, text: str) -> None:
        """Print a line above the bars, or as a line."""
        if not self._progress.disable:
            self._progress.console.print(text, markup=False)
        self._print(text)

    def _print(self, text: str) -> None:
        """Print a line where there is no terminal."""
        if self._prints_lines:
            self._printed_at = self._clock()
            self._progress.console.print(text, markup=False)


@dataclass
class _StageProgress:
    """One stage while it runs.

    Attributes:
        done: units of tasks that are done.
        per_minute: replies, over the last minute; 0 where not known.
    """

    line: TaskID
    n_rows: int
    done: int
    rate: CallRate = field(default_factory=CallRate)
    per_minute: float = 0.0

    def describe(self, now: float, calls: CallTotals) -> str:
        """Return calls, rate, tokens, cost, 429s and pause; empty if no call was sent."""
        self.per_minute = self.rate.on_calls(now, calls.answered)
        if not (calls.answered or calls.in_flight or calls.limited):
            return ""
        parts = [f"{short(calls.answered)} {'call' if calls.answered == 1 else 'calls'}"]
        if self.per_minute:
            parts.append(f"{short(self.per_minute)}/min")
        parts.append(f"{short(calls.tokens)} tok")
        if calls.usd:  # 0 where the model is free or its price is not known
            parts.append(dollars(calls.usd))
        if calls.limited:
            parts.append(f"{calls.limited}×429")
        if calls.pause_s >= 1:
            parts.append(f"waiting {calls.pause_s:.0f} s")
        return " ".join(parts)


def spent_line(meter: UsageMeter) -> str:
    """Return tokens, cost and 429s of a stage; empty if no model was called."""
    uses = meter.uses.values()
    tokens = sum(use.input_tokens + use.output_tokens for use in uses)
    limited = sum(use.rate_limited for use in uses)
    if not tokens and not limited:
        return ""
    parts = [f"{short(tokens)} tok", dollars(total_cost(use.cost_usd for use in uses))]
    return " ".join([*parts, f"{limited}×429"] if limited else parts)
