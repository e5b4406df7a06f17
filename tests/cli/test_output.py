"""Printed output: one JSON object only, progress on a terminal, and files that are whole or as they were."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from hirag_dist.cli._output import replacing
from hirag_dist.cli._progress import ProgressBars
from hirag_dist.cli.export import export
from hirag_dist.errors import StoreError
from hirag_dist.execution.events import CallsExpected, CallsProgress, StageFinished, StageStarted
from hirag_dist.llm.limits.protocol import CallTotals
from tests.built_in_builds import build, write_corpus

NOISE = """
import os, sys
sys.argv = ["hirag-dist", *sys.argv[1:]]
import hirag_dist.cli._command_line as command_line
from hirag_dist.cli import main
def add(app, arguments):
    @app.command("noise")
    def noise(json: bool = False):
        os.write(1, b"a library that writes past sys.stdout\\n")
        print("a print")
        command_line.emit_error("no such thing")
    @app.command("other")
    def other(): ...
command_line.add_commands = add
main.main()
"""


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [(["noise", "--json"], 0, "no such thing"), (["noise", "--json", "--nonsense"], 2, "No such option: --nonsense")],
)
@pytest.mark.integration
def test_stdout_holds_the_json_object_alone(argv: list[str], code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", NOISE, *argv], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in json.loads(done.stdout)["error"]
    assert len(done.stdout.splitlines()) == 1
    assert said in done.stderr


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with replacing(pipe) as new:
        assert new == pipe
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


CALLS = CallTotals(answered=40, tokens=45_600, usd=0.5, limited=3, in_flight=8, pause_s=20.0, timeouts=1, refused=2)
EXPECTED = {"extract": 100, "reports": 20}


def test_a_terminal_shows_every_phase_and_the_calls_of_the_one_that_runs() -> None:
    now = [0.0]
    bars = ProgressBars(True, Console(width=80, force_terminal=True, file=io.StringIO()), lambda: now[0])
    bars(StageStarted("documents", 1, 0, 3))
    bars(StageFinished("documents", False, 3, 0, 0.1))
    bars(CallsExpected(EXPECTED))
    bars(StageStarted("extract", 4, 1, 64, 16))
    now[0] = 60.0
    bars(CallsProgress("extract", CALLS))
    shown = io.StringIO()
    Console(width=80, file=shown).print(bars)
    assert shown.getvalue().splitlines() == [
        "read         done in 0.0 s",
        "extract      16 of 64 units, 16 kept, 38 of about 75 replies, 1 min",
        "entities",
        "hierarchy",
        "communities",
        "publish",
        "             8 calls in flight, 760 tokens/s, the endpoint asks to wait 20 s",
        "             40 replies, 2 refused, 1 timed out, 3 × 429, 45.6k tokens, $0.5000",
        "             in all about 57 calls left, about 1 min at the present rate",
    ]


def test_a_stage_of_one_task_shows_its_replies_and_a_phase_without_stages_nothing_to_do() -> None:
    now = [0.0]
    bars = ProgressBars(True, Console(width=80, force_terminal=True, file=io.StringIO()), lambda: now[0])
    bars(StageFinished("documents", True, 3, 0, 0.1))
    bars(CallsExpected({"extract": 12, "reports": 2}))
    bars(StageStarted("extract", 1, 0, 12))
    bars(CallsProgress("extract", CallTotals(answered=1, found=10, in_flight=1)))

    def shown() -> list[str]:
        file = io.StringIO()
        Console(width=80, file=file).print(bars)
        return file.getvalue().splitlines()

    assert shown()[:2] == [
        "read         kept from an earlier run",
        "extract      11 of about 12 replies, 10 of them stored before, 0.0 s",
    ]
    bars(CallsProgress("extract", CallTotals(answered=1249, found=10, in_flight=1)))  # more than was estimated
    assert shown()[1] == "extract      1,259 of about 1,300 replies, 10 of them stored before, 0.0 s"
    bars(StageFinished("extract", False, 12, 0, 0.1))
    bars(StageStarted("graph", 1, 0, 1))
    assert shown()[3] == "hierarchy    nothing to do"


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported")
    build(write_corpus(folder / "corpus", 3), folder / "index")
    return folder / "index"


@contextmanager
def files_of_at_most(n_bytes: int) -> Iterator[None]:
    """Let writes fail as on a full disk, beyond some bytes of a file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("name", "n_bytes"), [("graph.graphml", 1000), ("tables", 6000)])
def test_an_export_that_fails_leaves_nothing_of_itself_and_the_former_one(
    index: Path, tmp_path: Path, name: str, n_bytes: int
) -> None:
    with pytest.raises(StoreError, match="cannot write"), files_of_at_most(n_bytes):
        export(str(index), str(tmp_path / name))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    if name == "graph.graphml":
        file = tmp_path / name
        export(str(index), str(file))
        before = file.read_bytes()
        with pytest.raises(StoreError, match="cannot write"), files_of_at_most(n_bytes):
            export(str(index), str(file))
        assert file.read_bytes() == before
