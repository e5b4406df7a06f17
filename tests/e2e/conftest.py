"""Builds of the project's own sample corpus, run as a user runs them: in processes of their own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

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
    corpus: Path
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
        said = self._forked.ask(argv=argv, cwd=self.cwd, out=out, err=err, environ=self.environ)
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

    def build(self, **job: Any) -> dict[str, Any]:
        """Return the output of the build, with `signal` if it was killed. Keywords: `fork_builds.build`."""
        return self.ask(**job)

    def ask(self, **job: Any) -> dict[str, Any]:
        """Return the result of a job."""
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
    return Built(place / "index", config, corpus, report)


@pytest.fixture(scope="session")
def forked() -> Iterator[ForkedBuilds]:
    builds = ForkedBuilds()
    yield builds
    builds.close()


@pytest.fixture
def forked_on() -> Iterator[Callable[[str], ForkedBuilds]]:
    """Builds on a kind of processor: numpy's products are those of its kernels (`OPENBLAS_CORETYPE`)."""
    with ExitStack() as stack:

        def start(kind: str) -> ForkedBuilds:
            builds = ForkedBuilds(OPENBLAS_CORETYPE=kind)
            stack.callback(builds.close)
            return builds

        yield start


@pytest.fixture(scope="session")
def until() -> Callable[..., None]:
    """Poll another process's doings: return once a condition holds, fail after a deadline."""

    def wait(condition: Callable[[], object], what: str, seconds: float = 240.0) -> None:
        give_up_at = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < give_up_at, f"no {what} within {seconds:g} s"
            time.sleep(0.005)

    return wait


def paid_endpoint(base_url: str, **more: Any) -> dict[str, Any]:
    """The `llm` section in which every role is played over HTTP, for money."""
    chat = {"base_url": base_url, "model": "extractive", "max_concurrent": 4, "output": "json_schema"}
    price = {"price": {"input": 1.0, "output": 4.0}}
    embed = {"base_url": base_url, "model": "hashing", "dim": 384, "batch_size": 64, "max_concurrent": 4} | price
    roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat") | {"embed": "vectors"}
    return {"endpoints": {"chat": chat | price | more, "vectors": embed}, "roles": roles, "outage_timeout_s": 5}


@pytest.fixture(scope="session")
def paid() -> Callable[..., dict[str, Any]]:
    return paid_endpoint
