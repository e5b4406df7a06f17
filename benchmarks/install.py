"""Size and time of an installation, and time of the import: the client's distribution and the whole one.

    python -m benchmarks.install                 one JSON line for each installation; asks the package registry
    python -m benchmarks.install --only client   hirag-dist-client alone

Each is installed as a wheel of this tree into a fresh virtual environment, without bytecode, from uv's cache if it has
the packages (`--no-cache` downloads them). An import is timed in new processes: the first one compiles the bytecode and
is reported apart, the others give the medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {  # name → project folder, extras, what is imported
    "client": ("clients/python", "", "from hirag_dist.client import HiragClient"),
    "client[langchain]": (
        "clients/python",
        "[langchain]",
        "from hirag_dist.integrations.langchain import HiragRetriever",
    ),
    "client[llamaindex]": (
        "clients/python",
        "[llamaindex]",
        "from hirag_dist.integrations.llamaindex import HiragRetriever",
    ),
    "whole": (".", "", "from hirag_dist.client import HiragClient"),
    "whole, index": (".", "", "from hirag_dist import open_index"),
}
RUNS = 9
TIMED = """
import sys, time
wall, cpu = time.perf_counter(), time.process_time()
{statement}
print(time.perf_counter() - wall, time.process_time() - cpu, len(sys.modules))
"""
BUILD = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=DISTRIBUTIONS, default=list(DISTRIBUTIONS))
    parser.add_argument("--no-cache", action="store_true", help="download every package")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        installed: dict[tuple[str, str], dict[str, Any]] = {}
        for name in options.only:
            project, extras, statement = DISTRIBUTIONS[name]
            where = Path(folder) / f"{len(installed)}"
            found = installed.get((project, extras))
            if found is None:
                found = installed[project, extras] = _install(project, extras, where, options.no_cache)
            line = {"benchmark": "install", "case": name, **found["figures"], "import": _import(found, statement)}
            print(json.dumps(line), flush=True)


def _install(project: str, extras: str, where: Path, no_cache: bool) -> dict[str, Any]:
    """Return the Python of an environment with the wheel of a project folder, and the figures of its installation."""
    wheels = where.with_name(f"{where.name}-wheel")
    wheels.mkdir(parents=True)
    built = _output([sys.executable, "-c", BUILD, str(wheels)], cwd=ROOT / project)
    uv = [sys.executable, "-m", "uv", "--quiet", *(["--no-cache"] if no_cache else [])]
    _output([*uv, "venv", "--python", sys.executable, str(where)])
    python = where / "bin" / "python"
    before = _bytes(where)
    started = time.perf_counter()
    wheel = f"{wheels / built.splitlines()[-1]}{extras}"
    _output([*uv, "pip", "install", "--link-mode", "copy", "--python", str(python), wheel])
    figures = {
        "packages": len(json.loads(_output([*uv, "pip", "list", "--format", "json", "--python", str(python)]))),
        "mb": round((_bytes(where) - before) / 1e6, 1),
        "wheel_kb": round((wheels / built.splitlines()[-1]).stat().st_size / 1e3),
        "install_s": round(time.perf_counter() - started, 1),
        "cached": not no_cache,
    }
    return {"python": str(python), "figures": figures}


def _import(installed: dict[str, Any], statement: str) -> dict[str, Any]:
    command = [installed["python"], "-I", "-c", TIMED.format(statement=statement)]
    first, *others = [[float(value) for value in _output(command).split()] for _ in range(RUNS + 1)]
    wall, cpu, modules = zip(*others, strict=True)
    return {
        "first_ms": round(first[0] * 1e3),
        "ms": round(statistics.median(wall) * 1e3),
        "cpu_ms": round(statistics.median(cpu) * 1e3),
        "modules": int(modules[0]),
    }


def _output(command: list[str], cwd: Path | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
