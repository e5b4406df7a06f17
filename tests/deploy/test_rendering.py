"""The chart in every setting, and in many combinations of them (`switches`), rendered by the real Helm."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hirag_dist.composition.serving import server_options
from tests.deploy.charts import RAY, SOURCE, Chart, Object, configurations, merged, only, read_config
from tests.deploy.policies import release_faults
from tests.deploy.schemas import VERSIONS, faults
from tests.deploy.switches import covering, everything, values_of

ENVIRON = {"LLM_KEY": "k", "MILVUS": "t", "MILVUS_PASSWORD": "p"}


def check(objects: list[Object], name: str, tmp_path: Path) -> None:
    """Fail where a release has a fault, by schemas, rules, or the reading of its configuration."""
    wrong = [fault for found in objects for at in (VERSIONS[0], VERSIONS[-1]) for fault in faults(found, at)]
    assert wrong + release_faults(objects) == [], name
    for text in configurations(objects):
        config = read_config(text, tmp_path, ENVIRON)
        if "listen:" in text:
            server_options(config)


def test_releases_that_have_every_setting_of_every_switch(chart: Chart, tmp_path: Path) -> None:
    choices = covering()
    for choice, objects in zip(choices, chart.render_many([values_of(each) for each in choices]), strict=True):
        check(objects, ", ".join(f"{name}: {setting}" for name, setting in choice.items()), tmp_path)


OF_A_SERVICE = {
    *("Deployment", "Service", "HorizontalPodAutoscaler", "PodDisruptionBudget", "Ingress", "Certificate"),
    *("ServiceMonitor", "Pod"),
}


def test_a_release_of_builds_alone_has_nothing_of_a_service(chart: Chart, tmp_path: Path) -> None:
    """Whatever its values say of one, and also where they do not say who may call."""
    ingress = {"query.ingress.enabled": True}  # without hosts: with a service it is refused
    choice, nobody = everything() | {"query": "off"}, RAY | {"query.enabled": False, "callers.existingSecret": ""}
    objects, alone = chart.render_many([merged(values_of(choice), ingress), merged(nobody)])
    check(objects, "builds alone", tmp_path)
    assert not {found["kind"] for found in objects} & OF_A_SERVICE
    (rules,) = only(objects, "PrometheusRule")["spec"]["groups"]
    assert rules["name"].endswith(".builds")
    assert not [found for found in objects if found["metadata"]["name"].endswith("-dashboard")]
    assert only(alone, "Job")


def test_the_values_to_start_from(chart: Chart, tmp_path: Path) -> None:
    """Each file of `ci/` gives whole releases of its own values, and each has its kind of build."""
    files = sorted((SOURCE / "ci").glob("*-values.yaml"))
    given = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in files]
    builds = {}
    for path, objects in zip(files, chart.render_many(given), strict=True):
        check(objects, path.name, tmp_path)
        builds[path.name] = {"RayJob", "CronJob", "Job"} & {each["kind"] for each in objects}
    assert builds == {
        "laptop-values.yaml": {"Job"},
        "team-values.yaml": {"CronJob"},
        "large-values.yaml": {"Job", "RayJob"},
    }


@pytest.mark.parametrize("version", [VERSIONS[0], pytest.param(VERSIONS[-1], marks=pytest.mark.smoke)])
def test_the_oldest_and_the_newest_kubernetes(chart: Chart, version: str) -> None:
    objects = chart.render(values_of(everything()), "--kube-version", f"{version}.0")
    assert not [fault for found in objects for fault in faults(found, version)]


def test_a_kubernetes_that_is_too_old_is_refused(chart: Chart) -> None:
    oldest = int(VERSIONS[0].split(".")[1])
    assert "incompatible with Kubernetes" in chart.refusal({}, "--kube-version", f"1.{oldest - 1}.0")
