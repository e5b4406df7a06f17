"""Benchmarks by name, as JSON lines; without a name those that fit a laptop, on the sample corpus, with a table.

python -m benchmarks [NAME [OPTIONS]]
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

SCRIPTS = (
    ("build",),
    ("query", "--sample", "--count", "200"),
    ("load", "--sample", "--seconds", "4"),
)
NAMES = (
    *("build", "doors", "gpu", "hierarchy", "leiden", "llm_pool", "load", "peers"),
    *("power_cuts", "query", "recall", "scale", "update_scale", "updates", "vectors"),
)


def main() -> None:
    if len(sys.argv) > 1:
        name, *options = sys.argv[1:]
        if name not in NAMES:
            raise SystemExit(f"usage: python -m benchmarks [NAME [OPTIONS]]; NAME is one of {', '.join(NAMES)}")
        raise SystemExit(subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options], check=False).returncode)
    lines: list[dict[str, Any]] = []
    for script, *options in SCRIPTS:
        command = [sys.executable, "-m", f"benchmarks.{script}", *options]
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
