"""Reading a Dockerfile, and doing what its stages say without Docker: in a folder that stands in for the root."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.charts import ROOT

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"
_OURS = ("/opt/hirag", "/application", "/tmp", "/wheels", "/source")  # what the stages write to


@dataclass
class Stage:
    """One FROM and what follows it: (instruction, arguments)."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        """Return the arguments of all instructions of a kind."""
        return [arguments for name, arguments in self.steps if name == instruction]


def read(text: str) -> tuple[dict[str, str], dict[str, Stage]]:
    """Return the arguments before the first stage, and the stages by name, in order."""
    joined = re.sub(r"\\\n", " ", "\n".join(line for line in text.splitlines() if not line.startswith("#")))
    before: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    stage: Stage | None = None
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, _, arguments = line.partition(" ")
        if instruction == "FROM":
            base, _, name = arguments.partition(" AS ")
            stage = stages[name] = Stage(base, name)
        elif stage is None:
            before |= variables(arguments)
        else:
            stage.steps.append((instruction, arguments.strip()))
    return before, stages


def variables(arguments: str) -> dict[str, str]:
    """Return the variables that ARG, ENV or LABEL sets.

    >>> variables('A=1 B="2 3" C')
    {'A': '1', 'B': '2 3', 'C': ''}
    """
    return {name: value for name, _, value in (each.partition("=") for each in shlex.split(arguments))}


class Bare:
    """Does stages in a folder, in an environment with their own variables only.

    Args:
        root: stands in for `/`, for all that the stages write.
        python: what `python` and `pip` of the base image are.
    """

    def __init__(self, root: Path, python: str) -> None:
        self.root = root
        self._tools = root / "tools"
        self._tools.mkdir(parents=True)
        (self._tools / "python").symlink_to(python)
        (self._tools / "pip").write_text(f'#!/bin/sh\nexec {python} -m pip "$@"\n', encoding="utf-8")
        (self._tools / "pip").chmod(0o755)

    def placed(self, text: str) -> str:
        """Return a command, or a path, with the folder before what the stages write to."""
        return re.sub(rf"(?<![\w/.])({'|'.join(_OURS)})(?=[/\s\"']|$)", rf"{self.root}\1", text)

    def run(self, stage: Stage, *, own_packages: bool = False) -> None:
        """Do a stage. Raises CalledProcessError where a command fails.

        Args:
            own_packages: leave out a first `pip install` into the base image's Python, which is that of the tests here.
        """
        environ = {"PATH": f"{self._tools}:/usr/local/bin:/usr/bin:/bin", "HOME": str(self.root / "home")}
        folder = self.root
        for instruction, arguments in stage.steps:
            match instruction:
                case "ARG" | "ENV":
                    environ |= {
                        name: self.placed(self._filled(value, environ)) for name, value in variables(arguments).items()
                    }
                case "WORKDIR":
                    folder = Path(self.placed(arguments))
                    folder.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(self._filled(arguments, environ), folder)
                case "RUN":
                    if own_packages and arguments.startswith("pip install"):
                        continue
                    command = self.placed(arguments)
                    subprocess.run(["/bin/sh", "-c", command], cwd=folder, env=environ, check=True)
                case _:
                    raise AssertionError(f"{instruction} is not done here")

    @staticmethod
    def _filled(text: str, environ: dict[str, str]) -> str:
        return re.sub(r"\$\{(\w+)\}", lambda found: environ[found.group(1)], text)

    def _copy(self, arguments: str, folder: Path) -> None:
        words = arguments.split()
        if words[0].startswith("--from="):
            return  # of an earlier stage: its files lie in the same folder here
        *sources, target = words
        place = folder / self.placed(target) if not target.startswith("/") else Path(self.placed(target))
        for source in sources:
            origin = ROOT / source
            if origin.is_dir():
                shutil.copytree(origin, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
                continue
            into = place / origin.name if target.endswith("/") else place
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(origin, into)
