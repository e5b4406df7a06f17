"""Progress of a build: bars on a terminal, plain lines elsewhere with --verbose, and build.json for `status`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from hirag_dist.cli.output import dollars, err
from hirag_dist.execution.events import StageFinished, StageStarted, TaskFinished
from hirag_dist.index.layout import BUILD
from hirag_dist.index.store import Store
from hirag_dist.pool.metering import Meter

log = logging.getLogger(__name__)


class Bars:
    """One line a stage on a terminal; nothing elsewhere."""

    def __init__(self, wanted: bool) -> None:
        self._progress = Progress(
            TextColumn("{task.description:<20}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:>7.0f}/{task.total:<7.0f}"),
            TextColumn("{task.fields[spent]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=err,
            disable=not (wanted and err.is_terminal),
        )
        self._lines: dict[str, TaskID] = {}
        self._meters: dict[str, Meter] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, event: object) -> None:
        """Show an event."""
        if isinstance(event, StageStarted):
            self._meters[event.label] = Meter()
            self._lines[event.label] = self._progress.add_task(event.label, total=max(event.n_rows, 1), spent="")
        elif isinstance(event, TaskFinished):
            self._meters[event.label].add(event.usage)
            spent = _spent(self._meters[event.label])
            self._progress.update(self._lines[event.label], advance=event.n_rows, spent=spent)
        elif isinstance(event, StageFinished):
            if event.reused:
                line = self._progress.add_task(event.label, total=1, completed=1, spent="kept")
                self._progress.update(line, visible=False)
            else:
                line = self._lines[event.label]
                self._progress.update(line, total=1 if not self._total(line) else None)
                self._progress.update(line, completed=self._total(line))
            log.info("%s: %s", event.label, "kept" if event.reused else f"{event.n_rows} rows, {event.seconds:.2f} s")

    def _total(self, line: TaskID) -> float:
        return float(self._progress.tasks[self._progress.task_ids.index(line)].total or 0)


def _spent(meter: Meter) -> str:
    calls = sum(use.calls for use in meter.uses.values())
    tokens = sum(use.input_tokens + use.output_tokens for use in meter.uses.values())
    cost = sum(use.cost_usd for use in meter.uses.values())
    return f"{calls} calls, {tokens / 1000:,.0f}k tokens, {dollars(cost)}" if calls else ""


class BuildRecord:
    """Keeps build.json: what this build has done, for `status` while it runs and after."""

    def __init__(self, store: Store, fence: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        """Prepare a record. `fence` is entered around every write, and raises where another build has the index."""
        self._store = store
        self._fence = fence
        self._record: dict[str, Any] = {"state": "running", "started_at": _now(), "stages": []}
        self._written = 0.0

    def __call__(self, event: object) -> None:
        """Note a finished stage."""
        if isinstance(event, StageFinished):
            self._record["stages"].append(
                {
                    "stage": event.label,
                    "kept": event.reused,
                    "rows": event.n_rows,
                    "rejects": event.rejects,
                    "seconds": round(event.seconds, 3),
                    "usage": event.usage.rows(),
                }
            )
            if time.monotonic() - self._written > 1.0:
                self._write()

    def close(self, state: str, **facts: Any) -> None:
        """Say how the build ended."""
        self._record |= {"state": state, "ended_at": _now()} | facts
        self._write()

    def _write(self) -> None:
        with self._fence():
            self._store.write_json(BUILD, self._record)
        self._written = time.monotonic()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
