"""Reading a Dockerfile."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field

from tests.deploy.charts import ROOT

DOCKERFILE = ROOT / "deploy/docker/Dockerfile"


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
