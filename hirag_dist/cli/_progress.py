"""Progress of a build: one line per stage on a terminal, log lines elsewhere with --verbose."""

from __future__ import annotations

import logging

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.text import Text

from hirag_dist.cli._output import dollars, err, short
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.execution.events import BatchesSubmitted, KernelsResolved, StageFinished, StageStarted, TaskFinished
from hirag_dist.llm.usage import UsageMeter

logger = logging.getLogger(__name__)


class ProgressBars:
    """Progress bars on a terminal, one per stage: done/total, rate, tokens, cost, 429s, time left."""

    def __init__(self, wanted: bool, console: Console = err) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<18}"),
            BarColumn(bar_width=8),
            TextColumn("{task.completed:.0f}/{task.total:.0f}", justify="right"),
            _Rate(),
            TextColumn("{task.fields[spent]}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            console=console,
            disable=not (wanted and console.is_terminal),
        )
        self._lines: dict[str, TaskID] = {}
        self._meters: dict[str, UsageMeter] = {}

    def __enter__(self) -> ProgressBars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: object) -> None:
        """Show an event."""
        if isinstance(event, StageStarted):
            self._meters[event.label] = UsageMeter()
            self._lines[event.label] = self._progress.add_task(
                event.label, total=max(event.n_rows, 1), completed=event.n_rows_done, spent=""
            )
        elif isinstance(event, TaskFinished):
            self._meters[event.label].add(event.usage)
            spent = spent_line(self._meters[event.label])
            self._progress.update(self._lines[event.label], advance=event.n_rows, spent=spent)
        elif isinstance(event, BatchesSubmitted):
            said = (
                f"{count_noun(event.n_calls, 'call is', 'calls are')} out in "
                f"{count_noun(event.n_batches, 'batch', 'batches')}"
            )
            logger.info("%s: %s", event.label, said)
            if event.label in self._lines:
                self._progress.update(self._lines[event.label], spent=said)
            else:  # of an earlier run: the stage has not begun here
                self._progress.console.print(f"{event.label}: {said} since an earlier run; waiting for them first")
        elif isinstance(event, KernelsResolved):
            logger.info("kernels: %s (of a worker with a GPU)", event.name)
        elif isinstance(event, StageFinished):
            if not event.reused:
                line = self._lines[event.label]
                self._progress.update(line, completed=max(event.n_rows, 1), total=max(event.n_rows, 1))
            logger.info(
                "%s: %s",
                event.label,
                "kept" if event.reused else f"{count_noun(event.n_rows, 'row')}, {event.seconds:.2f} s",
            )


class _Rate(ProgressColumn):
    """Column with the rate in units per second."""

    def render(self, task: Task) -> Text:
        """Return the rate, empty if it is not known yet."""
        speed = task.finished_speed or task.speed
        return Text(f"{short(speed)}/s" if speed else "", style="progress.data.speed")


def spent_line(meter: UsageMeter) -> str:
    """Return tokens, cost and 429s of a stage; empty if no model was called."""
    uses = meter.uses.values()
    tokens = sum(use.input_tokens + use.output_tokens for use in uses)
    limited = sum(use.rate_limited for use in uses)
    if not tokens and not limited:
        return ""
    parts = [f"{short(tokens)} tok", dollars(sum(use.cost_usd for use in uses))]
    return " ".join([*parts, f"{limited}×429"] if limited else parts)
