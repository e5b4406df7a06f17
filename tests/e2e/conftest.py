"""Builds of the project's own sample corpus, run as a user runs them: in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.simulator_thread import SimulatorThread

ROOT = Path(__file__).parents[2]
FILES = (
    "newton-whiteness-from-colours.md",
    "newton-queries-on-the-aether.md",
    "jefferson-1803-louisiana.md",
    "jefferson-1806-lewis-and-clarke.md",
)
SMALL = {  # several tasks a stage and three layers out of four documents
    "chunk_tokens": 150,
    "chunk_overlap_tokens": 10,
    "clustering": {"target_size": 6},
    "communities": {"max_size": 40},
    "llm": {"endpoints": {"builtin-embedder": {"kind": "hashing"}}},  # minilm takes 5 s of a build that takes 1
}
IN_FLIGHT = 4  # calls to each paid endpoint
FAR_S = 240.0  # for what takes seconds on a machine without other work
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith("HIRAG")},
    "PYTHONPATH": str(ROOT),
    "RAY_USAGE_STATS_ENABLED": "0",
    "NO_COLOR": "1",
    "COLUMNS": "160",
}


@dataclass(frozen=True)
class Built:
    """A finished index: its folder, the configuration file, and what `index --json` said."""

    folder: Path
    config: Path
    report: dict[str, Any]

    @property
    def snapshot(self) -> str:
        return str(self.report["snapshot"])


class Cli:
    """Runs `hirag-dist` in a process of its own, in a folder without hirag.yaml.

    Attributes:
        environ: what commands have on top of the tests' environment, keys of an object store for one.
    """

    def __init__(self, cwd: Path, forked: ForkedBuilds) -> None:
        self.cwd = cwd
        self.environ: dict[str, str] = {}
        self._forked = forked

    def start(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hirag_dist", *map(str, arguments)]
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
        return subprocess.Popen(command, cwd=self.cwd, env=ENVIRONMENT | self.environ, **options)

    def __call__(self, *arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, in a forked process: it need not import everything again."""
        out, err = self.cwd / "stdout.txt", self.cwd / "stderr.txt"
        argv = list(map(str, arguments))
        said = self._forked.run(argv=argv, cwd=self.cwd, out=out, err=err, environ=self.environ)
        done = subprocess.CompletedProcess(
            arguments, said.get("code", 0), out.read_text("utf-8"), err.read_text("utf-8")
        )
        assert "signal" not in said, said
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        check_stderr(done.stderr)
        return done

    def json(self, *arguments: str | Path, code: int = 0) -> Any:
        """Return the one object on stdout."""
        return json.loads(self(*arguments, "--json", code=code).stdout)


def check_stderr(text: str) -> None:
    for noise in ("Traceback", "never retrieved", "was destroyed", "never awaited", "Unclosed"):
        assert noise not in text, text


class ForkedBuilds:
    """A process that has imported everything and forks a child for each build: 0.02 s to start instead of 1.5."""

    def __init__(self, **environ: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_builds.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | environ,
        )

    def run(self, **job: Any) -> dict[str, Any]:
        """Return what became of a build or a command, with `signal` if it was killed. Keywords: `fork_builds`."""
        assert self._process.stdin
        print(json.dumps(job, default=str), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the fork server died"
        return dict(json.loads(line))

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four files of the sample corpus."""
    folder = tmp_path_factory.mktemp("corpus")
    for name in FILES:
        shutil.copy(ROOT / "hirag_dist" / "samples" / "corpus" / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def make_config(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Write a configuration file: the small one, and what is given on top."""

    def make(**keys: Any) -> Path:
        file = tmp_path_factory.mktemp("config") / "small.yaml"
        file.write_text(yaml.safe_dump(SMALL | keys), encoding="utf-8")
        return file

    return make


@pytest.fixture
def cli(tmp_path: Path, forked: ForkedBuilds) -> Cli:
    return Cli(tmp_path, forked)


@pytest.fixture(scope="session")
def built(
    tmp_path_factory: pytest.TempPathFactory, corpus: Path, make_config: Callable[..., Path], forked: ForkedBuilds
) -> Built:
    """An index that the command built inline in one go. Tests only read it."""
    place = tmp_path_factory.mktemp("built")
    config = make_config()
    report = Cli(place, forked).json("index", corpus, "-i", place / "index", "-c", config, "--executor", "inline")
    return Built(place / "index", config, report)


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkedBuilds]:
    builds = ForkedBuilds()
    yield builds
    builds.close()


def until(condition: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> Any:
    """Return the first true value of a condition; fail after a deadline, or when a process has ended."""
    give_up_at = time.monotonic() + FAR_S
    while not (found := condition()):
        assert time.monotonic() < give_up_at, f"not yet after {FAR_S:g} s"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.02)
    return found


def paid_endpoint(base_url: str, **key: str) -> dict[str, Any]:
    """The `llm` section in which every role is played over HTTP, for money."""
    endpoint = {"base_url": base_url, "max_concurrent": IN_FLIGHT, "price": {"input": 1.0, "output": 4.0}} | key
    chat = endpoint | {"model": "extractive", "output": "json_schema"}
    embed = endpoint | {"model": "hashing", "dim": 384, "batch_size": 64}
    roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat") | {"embed": "vectors"}
    return {"endpoints": {"chat": chat, "vectors": embed}, "roles": roles, "outage_timeout_s": 5}


def chat_calls(thread: SimulatorThread) -> int:
    return int(thread.stats()["endpoints"]["/v1/chat/completions"]["calls"])
