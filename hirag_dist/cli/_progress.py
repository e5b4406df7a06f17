"""Progress of a build: its phases on a terminal, sparse lines on stderr elsewhere."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from hirag_dist.cli._output import duration_text, err, short
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.execution.build_progress import PHASES, BuildProgress, PhaseProgress, rounded_calls
from hirag_dist.execution.events import CallsProgress, ExecutorStarting, KernelsResolved, StageFinished
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import dollars

logger = logging.getLogger(__name__)

LINE_INTERVAL_S = 60.0  # between two lines of a running phase where there is no terminal
_REFRESHES_PER_S = 2


class ProgressBars:
    """Progress of a build on stderr: a line for each phase on a terminal, with the calls and the time left below.

    Elsewhere a line is printed when a phase begins and ends, and at most one a minute while it runs.
    """

    def __init__(
        self,
        wanted: bool,
        console: Console = err,
        clock: Callable[[], float] = time.monotonic,
        phases: Sequence[str] = PHASES,
    ) -> None:
        """Prepare; without phases each stage is one."""
        self._wanted = wanted
        self._console = console
        self._clock = clock
        self._progress = BuildProgress(phases, clock)
        self._live = (
            Live(self, console=console, refresh_per_second=_REFRESHES_PER_S, transient=False)
            if wanted and console.is_terminal
            else None
        )
        self._prints_lines = wanted and not console.is_terminal
        self._printed_at = clock()
        self._ending = "done"

    def __enter__(self) -> ProgressBars:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending = "done" if kind is None else "interrupted" if kind is KeyboardInterrupt else "stopped"
        phase = self._progress.current
        self._progress.end()
        if self._live is not None:
            self._live.stop()
        if phase is not None:
            self._print(f"{phase.name}: {self._end_text(phase)}")
        if kind is KeyboardInterrupt and self._wanted:
            self._console.print(kept_text(self._progress), markup=False)

    def __call__(self, event: object) -> None:
        """Show an event."""
        before = self._progress.current
        self._progress(event)
        phase = self._progress.current
        if phase is not before:
            if before is not None:
                self._print(f"{before.name}: {self._end_text(before)}")
            if phase is not None:
                self._print(f"{phase.name}: begun")
        match event:
            case ExecutorStarting():
                if self._wanted:
                    name = "Ray" if event.name == "ray" else event.name
                    self._console.print(f"starting {name}", markup=False)  # above the phases, or as a line
            case CallsProgress():
                if self._clock() - self._printed_at >= LINE_INTERVAL_S and phase is not None:
                    text = unit_text(phase, self._progress.expected_calls)
                    self._print(f"{phase.name}: {'; '.join([text, *self._call_lines(phase)])}")
            case KernelsResolved():
                logger.info("kernels: %s (of a worker with a GPU)", event.name)
            case StageFinished():
                rows = f"{count_noun(event.n_rows, 'row')}, {event.seconds:.2f} s"
                logger.info("%s: %s", event.label, "kept" if event.reused else rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield a line for each phase, and lines about the calls and the time left while one runs."""
        progress = self._progress
        width = max((len(phase.name) for phase in progress.phases), default=0)
        for phase in list(progress.phases):
            text = self._phase_text(phase)
            style = "dim" if phase.begun_at is None else ""
            yield Text(f"{phase.name:<{width}}  {text}".rstrip(), style, no_wrap=True, overflow="ellipsis")
        if progress.current is not None and progress.current.ended_at is None:
            for line in self._call_lines(progress.current):
                yield Text(f"{'':<{width}}  {line}", "dim", no_wrap=True, overflow="ellipsis")

    def _call_lines(self, phase: PhaseProgress) -> list[str]:
        spent = ", ".join(spent_parts(phase.calls))
        return [line for line in (flight_text(self._progress), spent, left_text(self._progress)) if line]

    def _phase_text(self, phase: PhaseProgress) -> str:
        if phase.begun_at is None:
            return ""
        if phase.ended_at is not None:
            return self._end_text(phase)
        parts = [unit_text(phase, self._progress.expected_calls), duration_text(self._clock() - phase.begun_at)]
        return ", ".join(part for part in parts if part)

    def _end_text(self, phase: PhaseProgress) -> str:
        """Return how a phase ended, its time and the calls of this run."""
        ending = self._ending if phase is self._progress.current else "done"
        begun, ended = phase.begun_at, phase.ended_at
        if begun is None or ended is None:
            return ending
        if ending == "done" and not phase.is_new and phase.name != "publish":
            return "kept from an earlier run" if phase.has_ended_stage else "nothing to do"
        in_time = f"{ending} in" if ending == "done" else f"{ending} after"
        return ", ".join([f"{in_time} {duration_text(ended - begun)}", *spent_parts(phase.calls)])

    def _print(self, text: str) -> None:
        """Print a line where there is no terminal."""
        if self._prints_lines:
            self._printed_at = self._clock()
            self._console.print(text, markup=False)


def unit_text(phase: PhaseProgress, expected_calls: int | None) -> str:
    """Return the running stage of a phase, its units and its calls.

    Units are done with their task, which may be the whole stage: until the first, the replies alone tell how far it is.
    """
    if not phase.label:
        return ""
    parts = []
    done = phase.calls.answered - phase.calls.refused + phase.calls.found
    has_calls = bool(expected_calls or (expected_calls is not None and done > 0))
    has_calls = has_calls and (phase.calls.in_flight > 0 or done > 0)
    if not has_calls or phase.units_done:
        parts.append(f"{phase.units_done:,} of {count_noun(phase.units, 'unit')}")
    if phase.units_kept:
        parts.append(f"{phase.units_kept:,} kept")
    if expected_calls is not None and has_calls:
        whole = max(rounded_calls(done + expected_calls), done)
        parts.append(f"{done:,} of about {count_noun(whole, 'reply', 'replies')}")
        if phase.calls.found:
            parts.append(f"{phase.calls.found:,} of them stored before")
    name = "" if phase.label == phase.name else f"{phase.label}: "
    return name + ", ".join(parts)


def flight_text(progress: BuildProgress) -> str:
    """Return the calls that are in flight, their rate, and how long the endpoint asks to wait."""
    parts = []
    calls_now = CallTotals() if progress.current is None else progress.current.calls
    if calls_now.in_flight:
        parts.append(f"{count_noun(calls_now.in_flight, 'call')} in flight")
    if calls_now.in_flight and progress.tokens_per_s:
        parts.append(f"{short(progress.tokens_per_s)} tokens/s")
    if calls_now.pause_s >= 1:
        parts.append(f"the endpoint asks to wait {calls_now.pause_s:.0f} s")
    return ", ".join(parts)


def left_text(progress: BuildProgress) -> str:
    """Return the calls that the build has left, and the time that they take; empty where none is left."""
    phase = progress.current
    calls, seconds = progress.left
    if phase is None or phase.name == "publish" or (calls is None and not phase.calls.answered):
        return ""
    if calls is None:
        return "calls left in all: unknown"
    if not calls:
        return "calls left in all: unknown, more than were estimated" if phase.calls.in_flight else ""
    left = count_noun(rounded_calls(calls), "call")
    if seconds is None:
        return f"in all about {left} left; time unknown before the first reply"
    unit = 60 if seconds < 7200 else 600  # an estimate has no more digits
    about = "less than a minute" if seconds < 60 else f"about {duration_text(unit * round(seconds / unit))}"
    return f"in all about {left} left, {about} at the present rate"


def kept_text(progress: BuildProgress) -> str:
    """Return what is kept of an interrupted build."""
    sent = progress.sent
    replies = f"{count_noun(sent.answered, 'reply', 'replies')} of this run arrived ({short(sent.tokens)} tokens)"
    where = "" if progress.current is None else f" The next run continues in phase {progress.current.name}."
    return f"{replies}: no reply is paid twice.{where}"


def spent_parts(calls: CallTotals) -> list[str]:
    """Return what calls brought and used: replies, refusals, time-outs, 429s, tokens and cost, where there are any."""
    parts = []
    if calls.answered:
        parts.append(count_noun(calls.answered, "reply", "replies"))
    if calls.refused:
        parts.append(f"{calls.refused:,} refused")
    if calls.timeouts:
        parts.append(f"{calls.timeouts:,} timed out")
    if calls.limited:
        parts.append(f"{calls.limited:,} × 429")
    if calls.tokens:
        parts.append(f"{short(calls.tokens)} tokens")
    if calls.usd:  # 0 where the model is free or its price is not known
        parts.append(dollars(calls.usd))
    return parts
