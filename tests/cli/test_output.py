"""Printed output: tables that fit, and stdout with one JSON object only."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from rich.console import Console

from hirag_dist.cli._bill import bill_table

NUMBERS = ("calls", "ledger_hits", "input_tokens", "cached_tokens", "output_tokens", "rejected", "rate_limited")


def printed(made: object, width: int) -> list[str]:
    console = Console(width=width, soft_wrap=True, highlight=False)
    with console.capture() as captured:
        console.print(made)
    return [line.rstrip() for line in captured.get().splitlines()]


def use(stage: str, **more: object) -> dict[str, object]:
    row: dict[str, object] = {"stage": stage, "role": "summarise", "endpoint": "openai-eu", "model": "gpt-4.1-mini"}
    return row | dict.fromkeys(NUMBERS, 1_234_567) | {"cost_usd": 1234.5} | more


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_no_number_of_the_bill_is_folded(width: int) -> None:
    lines = printed(bill_table([use("summarise layer 0"), use("reports above")], width=width), width)
    assert max(map(len, lines)) <= width
    rows = [line for line in lines if line.endswith("$1,234.50")]
    assert len(rows) == 2
    assert all(line.count("1,234,567") >= 3 for line in rows)  # calls, tokens in and out are never left out
    assert lines[-1].endswith("$2,469.00")
    assert ("gpt-4.1-mini" in rows[0]) == (width == 160)


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
    [
        (["noise", "--json"], 0, "no such thing"),
        (["noise", "--json", "--nonsense"], 2, "No such option: --nonsense"),
        (["noise", "--json", "7"], 2, "(7) (see `hirag-dist noise --help`)"),
        (["nothing", "--json"], 2, "No such command 'nothing'"),
    ],
)
@pytest.mark.integration
def test_stdout_holds_the_json_object_alone(argv: list[str], code: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", NOISE, *argv], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert said in json.loads(done.stdout)["error"]
    assert len(done.stdout.splitlines()) == 1
    assert said in done.stderr
