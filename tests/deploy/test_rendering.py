"""The chart in every setting, and in many combinations of them (`switches`), rendered by the real Helm."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hirag_dist.composition.serving import server_options
from hirag_dist.config.loader import load_config
from tests.deploy.charts import SOURCE, Chart, Object
from tests.deploy.policies import release_faults
from tests.deploy.schemas import VERSIONS, faults
from tests.deploy.switches import Choice, covering, everything, values_of

ENVIRON = {"LLM_KEY": "k", "MILVUS": "t", "MILVUS_PASSWORD": "p"}


def said(choice: Choice) -> str:
    return ", ".join(f"{name}: {setting}" for name, setting in choice.items())


def configurations(objects: list[Object]) -> dict[str, str]:
    return {
        found["metadata"]["name"]: found["data"]["hirag.yaml"]
        for found in objects
        if found["kind"] == "ConfigMap" and "hirag.yaml" in found["data"]
    }


def check(chart: Chart, choices: list[Choice], tmp_path: Path, versions: tuple[str, ...] = VERSIONS[-1:]) -> None:
    """Fail where one of the releases has a fault."""
    read: set[str] = set()
    for choice, objects in zip(choices, chart.render_many([values_of(each) for each in choices]), strict=True):
        check_release(objects, said(choice), tmp_path, versions, read)


def check_release(
    objects: list[Object],
    name: str,
    tmp_path: Path,
    versions: tuple[str, ...] = VERSIONS[-1:],
    read: set[str] | None = None,
) -> None:
    """Fail where a release has a fault, by schemas, rules, or the reading of its configuration, unless it was read."""
    read = set() if read is None else read
    wrong = [fault for found in objects for at in versions for fault in faults(found, at)]
    assert wrong + release_faults(objects) == [], name
    for text in set(configurations(objects).values()) - read:
        read.add(text)
        (tmp_path / "hirag.yaml").write_text(text, encoding="utf-8")
        config = load_config(str(tmp_path / "hirag.yaml"), ENVIRON).config
        if "listen:" in text:
            server_options(config)


def test_releases_that_have_every_setting_of_every_switch(chart: Chart, tmp_path: Path) -> None:
    check(chart, covering(), tmp_path, (VERSIONS[0], VERSIONS[-1]))


def test_the_values_to_start_from(chart: Chart, tmp_path: Path) -> None:
    """Each file of `ci/` gives whole releases of its own values, and each has its kind of build."""
    files = sorted((SOURCE / "ci").glob("*-values.yaml"))
    given = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in files]
    builds = {}
    for path, objects in zip(files, chart.render_many(given), strict=True):
        check_release(objects, path.name, tmp_path)
        builds[path.name.removesuffix("-values.yaml")] = {"RayJob", "CronJob", "Job"} & {
            each["kind"] for each in objects
        }
    assert builds == {"laptop": {"Job"}, "team": {"CronJob"}, "large": {"Job", "RayJob"}}


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[-1], marks=pytest.mark.smoke)])
def test_the_oldest_and_the_newest_kubernetes(chart: Chart, version: str) -> None:
    objects = chart.render(values_of(everything()), "--kube-version", f"{version}.0")
    assert not [fault for found in objects for fault in faults(found, version)]


def test_a_kubernetes_that_is_too_old_is_refused(chart: Chart) -> None:
    oldest = int(VERSIONS[0].split(".")[1])
    assert "incompatible with Kubernetes" in chart.refusal({}, "--kube-version", f"1.{oldest - 1}.0")
