"""The chart, rendered by the real Helm: one release at a time, or many in one process."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "deploy/helm/hirag-dist"
TOOLS = ROOT / "tools/helm/bin"
NAMESPACE = "search"

Values = dict[str, Any]
Object = dict[str, Any]

_AT_ONCE = 12  # releases of one process: what Helm parses grows with their square
_SOURCE = re.compile(r"^# Source: many/charts/r(\d+)/", re.MULTILINE)

LEAST: Values = {
    "index.uri": "s3://bucket/index",
    "image.repository": "hirag-dist",
    "callers.existingSecret": "callers",
    "build.ray.operatorNamespace": "kuberay",
}
"""The fewest values that the chart takes."""


def tool(name: str) -> str:
    """Return where a program is; the test is skipped where it is not."""
    found = TOOLS / name
    where = str(found) if found.exists() else shutil.which(name)
    if where is None:
        pytest.skip(f"there is no {name}: tools/helm.sh fetches it")
    return where


def merged(*parts: Mapping[str, Any]) -> Values:
    """Return values as Helm merges them: mappings key for key, anything else as a whole.

    Names of a part may be dotted, as those of `helm --set`: `{"a.b": 1}` is `{"a": {"b": 1}}`.
    """
    made: Values = {}
    for part in parts:
        for name, value in part.items():
            for key in reversed(name.split(".")):
                value = {key: value}
            made = _over(made, value)
    return made


def _over(values: Mapping[str, Any], more: Mapping[str, Any]) -> Values:
    made = dict(values)
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(made.get(key), Mapping)
        made[key] = _over(made[key], value) if both else value
    return made


class Chart:
    """A copy of the chart."""

    def __init__(self, folder: Path, helm: str = "helm") -> None:
        self._helm = tool(helm)
        self.folder = folder / "hirag-dist"
        self._rendered: dict[tuple[str, ...], str] = {}
        shutil.copytree(SOURCE, self.folder)

    def run(self, command: str, values: Mapping[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
        """Run `helm COMMAND` on the chart with values, in an environment that has no cluster."""
        return self._run(self.folder, command, values, *more)

    def _run(
        self, chart: Path, command: str, values: Mapping[str, Any], *more: str
    ) -> subprocess.CompletedProcess[str]:
        name = ["demo"] if command == "template" else []
        return subprocess.run(
            [self._helm, command, *name, str(chart), "--namespace", NAMESPACE, "--values", "-", *more],
            input=json.dumps(values),
            capture_output=True,
            text=True,
            check=False,
            env={"PATH": os.defpath, "HOME": str(self.folder)},
        )

    def render(self, values: Mapping[str, Any], *more: str) -> list[Object]:
        """Return the objects; the values are put over the least ones."""
        key = (json.dumps(values, sort_keys=True), *more)
        if key not in self._rendered:
            done = self.run("template", merged(LEAST, values), *more)
            assert done.returncode == 0, done.stderr
            self._rendered[key] = done.stdout
        return _objects(self._rendered[key])

    def render_many(self, releases: Sequence[Mapping[str, Any]]) -> Iterator[list[Object]]:
        """Yield the objects of each release, as `render` would return them but for the label helm.sh/chart.

        One process of Helm renders several: to it they are one chart that depends on the chart under several names.
        Objects that are the same in several releases are one: leave them as they are.
        """
        whole = self.folder.parent / "many"
        if not whole.exists():
            (whole / "charts").mkdir(parents=True)
            shutil.copytree(self.folder, whole / "charts" / self.folder.name)
        for start in range(0, len(releases), _AT_ONCE):
            batch = releases[start : start + _AT_ONCE]
            needed = [{"name": "hirag-dist", "version": "*", "alias": f"r{place}"} for place in range(len(batch))]
            head = {"apiVersion": "v2", "name": "many", "version": "0.0.0", "dependencies": needed}
            (whole / "Chart.yaml").write_text(yaml.safe_dump(head), encoding="utf-8")
            own = {"nameOverride": "hirag-dist"}  # Helm gives the chart the name that it goes by
            values = {f"r{place}": merged(LEAST, own, each) for place, each in enumerate(batch)}
            done = self._run(whole, "template", values)
            assert done.returncode == 0, done.stderr
            made: list[list[Object]] = [[] for _ in batch]
            for part in filter(str.strip, done.stdout.removeprefix("---\n").split("\n---\n")):
                source, _, text = part.partition("\n")
                found = _SOURCE.match(source)
                assert found is not None, part
                made[int(found[1])] += _object(text)
            yield from made

    def refusal(self, values: Mapping[str, Any], *more: str) -> str:
        """Return why Helm refuses the values, put over the least ones."""
        done = self.run("template", merged(LEAST, values), *more)
        assert done.returncode != 0, "these values were taken"
        return done.stderr


def script(name: str) -> ModuleType:
    """Return a script of the chart's as a module."""
    spec = importlib.util.spec_from_file_location(name, SOURCE / "files" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _objects(text: str) -> list[Object]:
    """Return the objects, and the RayJob that a pod of the release makes from one of them."""
    found = [each for each in yaml.load_all(text, yaml.CSafeLoader) if each]
    return found + [json.loads(each["data"]["rayjob.json"]) for each in found if "rayjob.json" in each.get("data", {})]


@cache
def _object(text: str) -> list[Object]:
    """Return the object of a document; none where a template made nothing."""
    return _objects(re.sub(r"(helm\.sh/chart\W+)r\d+-", r"\1hirag-dist-", text))


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


RAY: Values = {"build.once": True, "build.inputs": ["s3://bucket/docs"]}

INLINE: Values = RAY | {"config.execution.executor": "inline"}


def pod(objects: list[Object]) -> Object:
    return only(objects, "Deployment")["spec"]["template"]["spec"]


def config_of(objects: list[Object], component: str) -> dict[str, Any]:
    return yaml.safe_load(only(objects, "ConfigMap", f"-{component}")["data"]["hirag.yaml"])


def configurations(objects: list[Object]) -> set[str]:
    """Return the texts of the configurations that the pods of a release read."""
    return {found["data"]["hirag.yaml"] for found in objects if "hirag.yaml" in found.get("data", {})}


def read_config(text: str, folder: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Return a configuration as the program reads it from its file."""
    (folder / "hirag.yaml").write_text(text, encoding="utf-8")
    return load_config(str(folder / "hirag.yaml"), environ or {}).config


def ports(policy: Object, direction: str) -> set[int | str]:
    return {port["port"] for rule in policy["spec"][direction] for port in rule.get("ports", ())}
