"""One run of a build, measured by stage. A run that ends early leaves what it measured, and the next one goes on."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.scale.processes import ProcessWatcher, Use
from hirag_dist.application.build import run_add, run_build
from hirag_dist.application.index_result import IndexResult
from hirag_dist.config.model import Config
from hirag_dist.execution.events import StageFinished, StageStarted, TaskFinished
from hirag_dist.indexing import pipeline
from hirag_dist.indexing.publish import publish
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.layout import LEDGER, SNAPSHOTS, WORK

BETWEEN, START, PUBLISH = "between stages", "start", "publish"
_WRITE_EVERY_S = 30.0


@dataclass
class StageLog:
    """Event listener that writes a JSON line for each stage of a run, and one for a stage that is not done.

    Attributes:
        path: of the lines, appended to.
        run: number of the run; a later line of the same run and part replaces the earlier one.
        facts: of every line.
        index: folder of the index.
    """

    path: Path
    run: int
    facts: dict[str, Any]
    index: Path
    watcher: ProcessWatcher

    def __post_init__(self) -> None:
        self._part = -1
        self._use, self._usage, self._tasks, self._slowest_s, self._rows = Use(), UsageMeter(), 0, 0.0, 0
        self._reset(START, "")

    def __call__(self, event: object) -> None:
        """Note an event of the build."""
        if isinstance(event, StageStarted):
            self.begin(event.label, event.folder)
            self._rows = event.n_rows
        elif isinstance(event, TaskFinished):
            self._tasks += 1
            self._slowest_s = max(self._slowest_s, event.seconds)
            self._usage.add(event.usage)
            if time.monotonic() - self._written > _WRITE_EVERY_S:
                self._write(done=False)
        elif isinstance(event, StageFinished) and not event.reused:
            self._usage = event.usage  # of earlier runs too
            self.end()

    def begin(self, label: str, folder: str = "") -> None:
        """Begin a stage; the time since the last one was between stages."""
        self._write(done=True)
        self._reset(label, folder)

    def end(self) -> None:
        """End the stage in progress."""
        self._write(done=True)
        self._reset(BETWEEN, "")

    def _reset(self, label: str, folder: str) -> None:
        self._label, self._folder = label, folder
        self._part += 1
        self._began = self._written = time.monotonic()
        self._use, self._usage, self._tasks, self._slowest_s, self._rows = Use(), UsageMeter(), 0, 0.0, 0

    def _write(self, done: bool) -> None:
        use = self.watcher.take()
        for kind, seconds in use.cpu_s.items():
            self._use.cpu_s[kind] += seconds
        for kind, peak in use.peak_mb.items():
            self._use.peak_mb[kind] = max(self._use.peak_mb[kind], peak)
        self._written = time.monotonic()
        line = self.facts | {
            "run": self.run,
            "stage": self._label,
            "part": self._part,
            "done": done,
            "rows": self._rows,
            "tasks": self._tasks,
            "slowest_task_s": round(self._slowest_s, 2),
            "wall_s": round(self._written - self._began, 2),
            "cpu_s": {kind: round(seconds, 2) for kind, seconds in self._use.cpu_s.items() if seconds},
            "peak_mb": {kind: round(peak) for kind, peak in self._use.peak_mb.items()},
            **_calls(self._usage),
            "load": round(os.getloadavg()[0], 1),
        }
        if done and self._folder:
            line["bytes"] = size_of(self.index / self._folder)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(
                json.dumps({name: value for name, value in line.items() if name == "part" or value not in (0, {})})
                + "\n"
            )


def build(
    inputs: Path, index: Path, config: Config, log: Path, facts: dict[str, Any], endpoints: Sequence[int], add: bool
) -> IndexResult:
    """Build an index, or add to it, and append the measurements to a file.

    Args:
        endpoints: processes of the simulated endpoint.
        add: update the index that is there.
    """
    run = int(time.time())
    work = run_add if add else run_build
    with ProcessWatcher(endpoints) as watcher:
        stages = StageLog(log, run, facts, index, watcher)
        with _published(stages):
            result = work([str(inputs)], str(index), config, None, [stages])
        stages.end()
    sizes = {f"{name}_bytes": size_of(index / name) for name in (WORK, LEDGER, SNAPSHOTS)}
    counts = {name: int(count) for name, count in result.manifest.counts.items()}
    line = facts | {"run": run, "stage": "all", "counts": counts, **sizes, "snapshot": result.snapshot_id}
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    return result


@contextmanager
def _published(stages: StageLog) -> Iterator[None]:
    """Note publishing, which is no stage, as one."""

    def noted(*arguments: Any, **options: Any) -> Any:
        stages.begin(PUBLISH)
        published = publish(*arguments, **options)
        stages.end()
        return published

    with mock.patch.object(pipeline, "publish", noted):
        yield


def _calls(usage: UsageMeter) -> dict[str, int]:
    chat = [use for (role, _, _), use in usage.uses.items() if role != "embed"]
    embedded = [use for (role, _, _), use in usage.uses.items() if role == "embed"]
    return {
        "calls": sum(use.calls for use in chat),
        "found": sum(use.ledger_hits for use in chat),
        "input_tokens": sum(use.input_tokens for use in chat),
        "cached_tokens": sum(use.cached_tokens for use in chat),
        "output_tokens": sum(use.output_tokens for use in chat),
        "embedding_tokens": sum(use.input_tokens for use in embedded),
    }


def size_of(folder: Path) -> int:
    """Return the bytes of the files below a folder."""
    total = 0
    waiting = [folder]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except OSError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
            except OSError:
                continue
    return total
