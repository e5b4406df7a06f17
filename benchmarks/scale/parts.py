"""The parts of one measured size, each in a process of its own: corpus, build, update, service."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import query
from benchmarks.build import start_simulator
from benchmarks.generated import questions
from benchmarks.load import Load
from benchmarks.scale.corpus import write_corpus
from benchmarks.scale.measured_build import build
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

PARTS = ("corpus", "build", "update", "query", "service")
LINES = "measured.jsonl"
_CALLS_AT_A_TIME = 32
_QUESTIONS, _SERVED_S = 400, 10.0


@dataclass(frozen=True, slots=True)
class Size:
    """One size of the measurement.

    Attributes:
        folder: of all sizes, with the lines of measurements.
        tokens: of the corpus, about.
        executor: ray or inline.
        workers: of Ray.
        texts: a folder of JSON lines with `title` and `text`, a file for each source of the corpus.
    """

    folder: Path
    tokens: int
    texts: Path
    executor: str = "ray"
    workers: int = 2

    @property
    def own(self) -> Path:
        """The folder of this size."""
        return self.folder / f"{self.tokens}"

    @property
    def index(self) -> Path:
        """The index of this size."""
        return self.own / "index"

    @property
    def lines(self) -> Path:
        """The file of measurements of all sizes."""
        return self.folder / LINES

    def run(self, part: str) -> None:
        """Do a part and append its lines."""
        getattr(self, f"_{part}")()

    def write(self, line: dict[str, Any]) -> None:
        """Append a line of measurements."""
        with self.lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"tokens": self.tokens, **line}) + "\n")

    def _corpus(self) -> None:
        made = write_corpus(self.own, sorted(self.texts.glob("*.jsonl")), self.tokens)
        self.write({"what": "corpus", "counted": made.pop("tokens"), **made})

    def _build(self) -> None:
        with self._models() as (config, endpoints):
            build(self.own / "corpus", self.index, config, self.lines, self._facts("build"), endpoints, add=False)

    def _update(self) -> None:
        with self._models() as (config, endpoints):
            build(self.own / "added", self.index, config, self.lines, self._facts("update"), endpoints, add=True)

    def _query(self) -> None:
        command = [sys.executable, str(Path(query.__file__)), "--index", str(self.index), "--vectors", "memory"]
        command += ["--no-baseline", "--count", f"{_QUESTIONS}"]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            self.write({"what": "query", **json.loads(line)})

    def _service(self) -> None:
        vectors = self.own / "questions.npy"
        np.save(vectors, questions(open_snapshot(Store(str(self.index))).entity_vectors, _QUESTIONS))
        load = Load(str(self.index), self.workers, str(vectors), _SERVED_S, ())
        for line in load.lines(("closed", "saturation")):
            self.write({"what": "service", "processes": self.workers, **line})

    def _facts(self, part: str) -> dict[str, Any]:
        return {"tokens": self.tokens, "what": part, "executor": self.executor, "workers": self.workers}

    @contextmanager
    def _models(self) -> Iterator[tuple[Config, list[int]]]:
        """Give a configuration whose chat model is a `simulate-llm` of its own, and the process of that."""
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        simulator, url = start_simulator()
        chat = {"base_url": url, "model": "simulated", "max_concurrent": _CALLS_AT_A_TIME}
        settings: dict[str, Any] = {
            "llm.endpoints.sim": chat,
            "llm.endpoints.hashed": {"kind": "hashing"},
            **{f"llm.roles.{role}": "sim" for role in ("extract", "summarise", "report", "answer", "judge")},
            "llm.roles.embed": "hashed",
            "execution.executor": self.executor,
            "execution.workers": self.workers,
        }
        try:
            yield load_config(None, {}, settings).config, [simulator.pid]
        finally:
            simulator.terminate()
            simulator.wait()
