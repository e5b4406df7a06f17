"""Measured lines added up: stages of each size, and how they grow."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_LAYER = re.compile(r"(?:layer )?\d+(?:: | )?")
_SUMS = ("calls", "found", "input_tokens", "cached_tokens", "output_tokens", "bytes", "rows", "tasks")
_STAGES = {  # beginning of a stage's label → its row of the tables
    "merge layer": "merge of summary layers",
    "equal names": "equal names over layers",
    "embed": "vectors",
    "chunk vectors": "vectors",
    "cluster": "clusters",
    "summarise": "summaries",
    "describe": "descriptions",
    "merge": "merge",
    "communities": "communities",
    "report": "reports",
    "start": "start and between stages",
    "between stages": "start and between stages",
}


@dataclass
class StageSum:
    """Sums over the runs of a stage.

    Attributes:
        wall_s, cpu_s, peak_mb: `cpu_s` and `peak_mb` by kind of process (`processes.py`).
        sums: rows, tasks, calls, tokens of calls, and bytes in the work folder.
    """

    wall_s: float = 0.0
    cpu_s: Counter[str] = field(default_factory=Counter)
    peak_mb: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)

    @property
    def own_cpu_s(self) -> float:
        """CPU seconds of the build: all but the simulated endpoint's."""
        return sum(seconds for kind, seconds in self.cpu_s.items() if kind != "endpoint")

    def add(self, line: Mapping[str, Any], ends_stage: bool) -> None:
        """Add a line; rows, calls and bytes are of the whole stage, so only the line that ends it has them."""
        self.wall_s += line.get("wall_s", 0.0)
        self.cpu_s.update(line.get("cpu_s", {}))
        for kind, peak in line.get("peak_mb", {}).items():
            self.peak_mb[kind] = max(self.peak_mb[kind], peak)
        if ends_stage:
            self.sums.update({name: line.get(name, 0) for name in _SUMS})


@dataclass
class MeasuredSize:
    """The measurements of one size.

    Attributes:
        tokens: of the corpus, as counted.
        corpus: the line about it.
        stages: row of the tables → sums of a build; `update` of the update.
        totals: the line of the finished build, `update_totals` of the update; empty where it is not done.
        query, service: lines of these parts.
    """

    tokens: int
    corpus: dict[str, Any] = field(default_factory=dict)
    stages: dict[str, StageSum] = field(default_factory=dict)
    update: dict[str, StageSum] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
    update_totals: dict[str, Any] = field(default_factory=dict)
    query: list[dict[str, Any]] = field(default_factory=list)
    service: list[dict[str, Any]] = field(default_factory=list)

    def whole(self) -> StageSum:
        """Return the sums over all stages of the build."""
        return added(self.stages.values())


def added(sums: Iterable[StageSum]) -> StageSum:
    """Return sums over stages; peaks are the largest."""
    whole = StageSum()
    for each in sums:
        whole.wall_s += each.wall_s
        whole.cpu_s.update(each.cpu_s)
        whole.sums.update(each.sums)
        for kind, peak in each.peak_mb.items():
            whole.peak_mb[kind] = max(whole.peak_mb[kind], peak)
    return whole


def row_of(label: str) -> str:
    """Return the row of the tables that a stage belongs to.

    >>> [row_of(label) for label in ("merge layer 1: links", "cluster layer 0", "extract", "reports: level 2")]
    ['merge of summary layers', 'clusters', 'extract', 'reports']
    """
    return next((row for start, row in _STAGES.items() if label.startswith(start)), _LAYER.sub("", label).strip())


def read_lines(path: Path) -> dict[int, MeasuredSize]:
    """Return the measurements in a file, by the size that was asked for."""
    found: dict[int, MeasuredSize] = {}
    last: dict[tuple[Any, ...], dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        size = found.setdefault(line["tokens"], MeasuredSize(line["tokens"]))
        what = line["what"]
        if what == "corpus":
            size.corpus = line
            size.tokens = line["counted"]
        elif what == "query":
            size.query.append(line)
        elif what == "service":
            size.service.append(line)
        elif line["stage"] == "all":
            (size.totals if what == "build" else size.update_totals).update(line)
        else:
            last[line["tokens"], what, line["run"], line["part"]] = line
    for (tokens, what, *_), line in last.items():
        stages = found[tokens].stages if what == "build" else found[tokens].update
        stages.setdefault(row_of(line["stage"]), StageSum()).add(line, line.get("done", False))
    return dict(sorted(found.items()))


def exponent(sizes: Mapping[float, float]) -> float | None:
    """Return the slope of a line through logarithms, None below two sizes.

    >>> exponent({1e6: 10.0, 1e7: 100.0, 1e8: 1000.0})
    1.0
    """
    pairs = [(size, value) for size, value in sizes.items() if value > 0]
    if len(pairs) < 2:
        return None
    logs = np.log(np.array(pairs))
    return round(float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0]), 6)


def extrapolated(sizes: Mapping[float, float], to: float) -> float:
    """Return the value at a size, from the two largest measured ones; in proportion to one where there is no other.

    >>> round(extrapolated({1e6: 10.0, 1e7: 110.0, 1e8: 1100.0}, 1e9))
    11000
    """
    pairs = sorted((size, value) for size, value in sizes.items() if value > 0)
    if not pairs:
        return 0.0
    largest, value = pairs[-1]
    slope = exponent(dict(pairs[-2:]))
    return float(value * (to / largest) ** (1.0 if slope is None else slope))
