"""Builds of one to a hundred million tokens, measured by stage, and the tables of large builds.

    python -m benchmarks.scale run --tokens 1000000 10000000 --texts TEXTS --folder FOLDER [--parts build update]
    python -m benchmarks.scale tables --lines FILE

`run` makes a corpus of TEXTS, a folder of JSON lines with `title` and `text`, and of generated text beyond, builds it
with a chat model of `simulate-llm` at zero latency on a Ray of its own, adds a thousandth as many documents, opens the
index and asks it. It can be ended and started again: a part continues, and its lines in FOLDER/measured.jsonl are added
up. `tables` prints the tables of docs/research/scale.md.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.scale.measurements import read_lines
from benchmarks.scale.parts import PARTS, Size
from benchmarks.scale.tables import corpus_table, public_table, service_table, stage_table


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run")
    run.add_argument("--tokens", type=int, nargs="+", default=[1_000_000])
    run.add_argument("--folder", type=Path, required=True)
    run.add_argument("--texts", type=Path, required=True, help="folder of JSON lines with title and text")
    run.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    run.add_argument("--executor", choices=("ray", "inline"), default="ray")
    run.add_argument("--workers", type=int, default=2)
    run.add_argument("--here", action="store_true", help=argparse.SUPPRESS)  # in this process
    tables = commands.add_parser("tables")
    tables.add_argument("--lines", type=Path, required=True, help="measurements")
    arguments = parser.parse_args()
    if arguments.command == "tables":
        measured = read_lines(arguments.lines)
        for table in (public_table, stage_table, service_table, corpus_table):
            print(table(measured), "\n")
    elif arguments.here:
        size = Size(arguments.folder, arguments.tokens[0], arguments.texts, arguments.executor, arguments.workers)
        size.run(arguments.parts[0])
    else:
        for tokens in arguments.tokens:
            for part in arguments.parts:
                own = ["--tokens", str(tokens), "--parts", part, "--here"]
                subprocess.run([sys.executable, "-m", "benchmarks.scale", *_given(arguments), *own], check=True)


def _given(arguments: argparse.Namespace) -> list[str]:
    given = ["run", "--folder", str(arguments.folder), "--texts", str(arguments.texts)]
    return [*given, "--executor", arguments.executor, "--workers", str(arguments.workers)]


if __name__ == "__main__":
    main()
