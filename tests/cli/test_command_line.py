"""The command line: lazy imports, its list of commands, and Ctrl-C at any time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main

from hirag_dist.cli import _command_line, main
from tests.scripted_endpoint import write_config
from tests.toy_builds import Bench

HEAVY = {"aiohttp", "grpc", "numba", "numpy", "openai", "pyarrow", "pydantic", "pymilvus", "ray", "scipy", "sklearn"}


def modules_after(code: str) -> set[str]:
    """Return the top-level modules that a program has imported at its end."""
    program = f"{code}\nimport json, sys; sys.stderr.write(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}


@pytest.mark.integration
def test_help_imports_no_library_of_the_commands() -> None:
    code = "from hirag_dist.cli import _command_line; assert _command_line.run(['--help']) == 0"
    assert modules_after(code).isdisjoint(HEAVY)


@pytest.mark.integration
def test_query_imports_no_library_that_retrieval_does_not_use(tmp_path: Path) -> None:
    Bench(tmp_path).build(["alpha beta gamma", "gamma delta"])
    config = write_config(tmp_path / "hirag.yaml", {}, {})
    asked = ["query", "--config", str(config), "--index", str(tmp_path / "index"), "--context-only", "What is beta?"]
    code = f"from hirag_dist.cli import _command_line; assert _command_line.run({asked}) == 0"
    unused = HEAVY - {"numba", "numpy", "pyarrow", "pydantic", "scipy"} | {"milvus_lite", "pandas", "pypdfium2"}
    assert modules_after(code).isdisjoint(unused)


def options_of(command: Any) -> Iterator[tuple[str, str | None]]:
    """Yield each option of a command and of the commands below it: a name, and its help text."""
    for parameter in command.params:
        if parameter.param_type_name == "option":
            yield from ((name, parameter.help) for name in (*parameter.opts, *parameter.secondary_opts))
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def test_an_option_has_one_help_text_in_all_of_at_most_twenty_commands() -> None:
    assert len(_command_line.COMMANDS) <= 20
    app = typer.Typer()
    for name in _command_line.COMMANDS:
        _command_line.add_command(app, name)
    texts: dict[str, set[str | None]] = {}
    for name, text in options_of(typer.main.get_command(app)):
        texts.setdefault(name, set()).add(text)
    assert {name: differing for name, differing in texts.items() if len(differing) > 1} == {}
    assert len(texts) > 100


def test_the_value_of_a_common_option_names_no_command() -> None:
    _command_line.add_commands(app := typer.Typer(), ["--log-format", "json", "status", "--index", "i"])
    assert [command.name for command in app.registered_commands] == ["status"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "--index", "i", "--all"], "--all is gone: `hirag-dist status` shows the last build"),
        (["eval", "questions", "--out", "o", "--questions", "5"], "--per-task is the number of questions of each"),
        (["serve", "--index", "i", "--verify"], "--verify is gone: --check-files"),
        (["token"], "`hirag-dist token` is now `hirag-dist serve token NAME`"),
    ],
)
def test_a_former_option_or_command_says_what_takes_its_place(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _command_line.run(arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("name", [*_command_line.COMMANDS, "eval judge", "eval retrieval", "serve token"])
def test_help_fits_a_terminal_of_80_columns(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No word is cut in a table, and no paragraph is broken where its source is."""
    assert _command_line.run([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if line.endswith("… │") and not line.endswith("s3://… │")] == []


@pytest.mark.parametrize("json_", [False, True])
def test_a_package_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], json_: bool
) -> None:
    def add(app: typer.Typer, arguments: Sequence[str]) -> None:
        import_module("no_such_package.part")

    monkeypatch.setattr(_command_line, "add_commands", add)
    assert _command_line.run(["work", *(["--json"] if json_ else [])]) == 1
    out, err = capfd.readouterr()
    message = "the package no_such_package is not installed, and this command needs it: pip install hirag-dist"
    assert err == f"hirag-dist: {message}\n"
    assert (json.loads(out) == {"error": message}) if json_ else not out


SLOW_IMPORT = """
import importlib, sys, time
from hirag_dist.cli import main
sys.argv = ["hirag-dist", "status", *sys.argv[1:]]
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == {slow!r}:
            print("importing", flush=True)
            try:
                time.sleep(60)
            except KeyboardInterrupt:
                raise ImportError("a library hides the interrupt")
sys.meta_path.insert(0, Slow())
main.main()
"""


@pytest.mark.parametrize(
    ("slow", "number", "code"),
    [("hirag_dist.cli._command_line", signal.SIGINT, 130), ("hirag_dist.cli.status", signal.SIGTERM, 143)],
)
@pytest.mark.integration
def test_ctrl_c_and_sigterm_during_imports(slow: str, number: int, code: int) -> None:
    command = [sys.executable, "-c", SLOW_IMPORT.format(slow=slow)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "importing\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert (out, err) == ("", f"hirag-dist: {main.INTERRUPTED_MESSAGE}\n")


@pytest.mark.parametrize("is_ignored", [False, True])
def test_sigterm_is_ctrl_c_with_a_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_ignored: bool
) -> None:
    """Also where SIGINT is ignored, as in a process that a shell has started in the background."""

    def add(app: typer.Typer, arguments: Sequence[str]) -> None:
        app.command("work")(lambda: os.kill(os.getpid(), signal.SIGTERM))
        app.command("other")(lambda: None)

    monkeypatch.setattr(_command_line, "add_commands", add)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    try:
        if is_ignored:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        main.exit_on_signals()
        assert _command_line.run(["work"]) == 143
    finally:
        for number in numbers:
            signal.signal(number, before[number])
    assert capsys.readouterr().err == f"hirag-dist: {main.INTERRUPTED_MESSAGE}\n"
