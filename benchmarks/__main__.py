"""`make bench`: the benchmarks that fit a laptop, on the sample corpus, and a table at the end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SCRIPTS = (
    ("build.py",),
    ("query.py", "--sample", "--count", "200"),
    ("load.py", "--sample", "--seconds", "4"),
    ("simulator.py",),
    ("memory.py", "--chunks", "1000", "10000"),
    ("merge.py", "--mentions", "500000", "--workers", "0", "2"),
    ("faults.py", "--quick"),
    ("scheduler.py", "--workers", "50", "--least-calls", "10000", "--cases", "requests a minute", "stragglers"),
)


def main() -> None:
    lines: list[dict[str, Any]] = []
    for script, *options in SCRIPTS:
        command = [sys.executable, str(Path(__file__).with_name(script)), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                print(line, end="", flush=True)
                lines.append(json.loads(line))
        if process.returncode:
            raise SystemExit(process.returncode)
    table = Table("benchmark", "case", "figure", "value", box=None, header_style="dim")
    for row in lines:
        case = ", ".join(str(row[key]) for key in ("executor", "way", "vectors", "case") if key in row)
        for figure, value in _flat(row):
            table.add_row(row["benchmark"], case, figure, value)
    Console(width=140).print(table)


def _flat(line: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for key, value in line.items():
        if isinstance(value, dict) and key != "endpoint_stats":
            found.extend(_flat(value, f"{prefix}{key}."))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found.append((prefix + key, f"{value:,}"))
    return found


if __name__ == "__main__":
    main()
