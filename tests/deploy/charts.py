"""The chart, rendered by the real Helm."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy/helm/hirag-dist"
TOOLS = ROOT / "tools/helm/bin"
NAMESPACE = "search"

Values = dict[str, Any]
Object = dict[str, Any]

LEAST: Values = {"index": {"uri": "s3://bucket/index"}, "callers": {"existingSecret": "callers"}}
"""The fewest values that the chart takes."""


def tool(name: str) -> str:
    """Return where a program is; the test is skipped where it is not."""
    found = TOOLS / name
    where = str(found) if found.exists() else shutil.which(name)
    if where is None:
        pytest.skip(f"there is no {name}: tools/helm.sh fetches it")
    return where


def merged(values: Mapping[str, Any], more: Mapping[str, Any]) -> Values:
    """Return values as Helm merges them: mappings key for key, anything else as a whole."""
    made = dict(values)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = merged(made[key], value) if both else value
    return made


class Chart:
    """A copy of the chart in which the charts that it may bring are empty ones: theirs are not to be had everywhere."""

    def __init__(self, folder: Path, helm: str = "helm") -> None:
        self._helm = tool(helm)
        self.folder = folder / "hirag-dist"
        shutil.copytree(SOURCE, self.folder)
        about = yaml.safe_load((SOURCE / "Chart.yaml").read_text(encoding="utf-8"))
        for needed in about["dependencies"]:
            empty = self.folder / "charts" / needed["name"]
            empty.mkdir(parents=True)
            version = needed["version"].removeprefix("^")
            head = {"apiVersion": "v2", "name": needed["name"], "version": version}
            (empty / "Chart.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
            (empty / "values.yaml").write_text("{}", encoding="utf-8")

    def run(self, command: str, values: Mapping[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
        """Run `helm COMMAND` on the chart with values, in an environment that has no cluster."""
        name = ["demo"] if command == "template" else []
        return subprocess.run(
            [self._helm, command, *name, str(self.folder), "--namespace", NAMESPACE, "--values", "-", *more],
            input=yaml.safe_dump(dict(values)),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.defpath, "HOME": str(self.folder)},
        )

    def render(self, values: Mapping[str, Any], *more: str) -> list[Object]:
        """Return the objects; the values are put over the least ones."""
        done = self.run("template", merged(LEAST, values), *more)
        assert done.returncode == 0, done.stderr
        return [each for each in yaml.load_all(done.stdout, yaml.CSafeLoader) if each]

    def refusal(self, values: Mapping[str, Any], *more: str) -> str:
        """Return why Helm refuses the values, put over the least ones."""
        done = self.run("template", merged(LEAST, values), *more)
        assert done.returncode != 0, "these values were taken"
        return done.stderr


def script(name: str) -> ModuleType:
    """Return a script of the chart's as a module."""
    spec = importlib.util.spec_from_file_location(name, SOURCE / "files" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def only(objects: list[Object], kind: str, suffix: str = "") -> Object:
    """Return the one object of a kind whose name ends so."""
    (found,) = (each for each in objects if each["kind"] == kind and each["metadata"]["name"].endswith(suffix))
    return found


def pod_templates(found: Object) -> Iterator[tuple[str, Object]]:
    """Yield (where, pod template) of all pods that an object makes."""
    spec = found.get("spec", {})
    match found["kind"]:
        case "Pod":
            yield "", found
        case "Deployment" | "Job":
            yield "", spec["template"]
        case "CronJob":
            yield "", spec["jobTemplate"]["spec"]["template"]
        case "RayJob":
            yield "submitter", spec["submitterPodTemplate"]
            yield "head", spec["rayClusterSpec"]["headGroupSpec"]["template"]
            for group in spec["rayClusterSpec"]["workerGroupSpecs"]:
                yield group["groupName"], group["template"]
