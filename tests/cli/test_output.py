"""Printed output: tables that fit, and stdout with one JSON object only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hirag_dist.cli._output import replacing

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


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "graph.graphml"
    file.write_text("before")
    with pytest.raises(UnicodeEncodeError), replacing(file) as new:
        new.write_text("the first half \ud800")
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]
    with replacing(file) as new:
        new.write_text("after")
        assert file.read_text() == "before"
    assert file.read_text() == "after"
    assert list(tmp_path.iterdir()) == [file]


def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with replacing(pipe) as new:
        assert new == pipe
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]
