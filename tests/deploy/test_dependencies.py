"""Subcharts: the lock, fetching by Helm, and the rendered subcharts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.charts import LEAST, ROOT, Object, Values, merged, only
from tests.deploy.repositories import Repositories, copied, locked, repositories

MILVUS: Values = {
    "milvus": {"enabled": True},
    "config": {"vectors": {"backend": "milvus", "token": "root:${MILVUS_PASSWORD}"}},
    "secretEnv": [{"name": "MILVUS_PASSWORD", "secretName": "milvus-root", "secretKey": "password"}],
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repositories]:
    with repositories(tmp_path_factory.mktemp("repositories")) as made:
        yield made


@pytest.fixture(scope="module")
def whole(known: Repositories, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with what `helm dependency build` fetched."""
    folder = copied(tmp_path_factory.mktemp("whole"))
    done = known.helm("dependency", "build", "--skip-refresh", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def rendered(known: Repositories, chart: Path, values: Values, tmp_path: Path, name: str = "demo") -> list[Object]:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(merged(LEAST, values)), encoding="utf-8")
    done = known.helm("template", name, str(chart), "--values", str(tmp_path / "values.yaml"))
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def given(objects: list[Object], chart: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(only(objects, "ConfigMap", f"{chart}-values")["data"]["values.yaml"])
    return found


def test_helm_fetches_what_the_lock_says(whole: Path) -> None:
    assert {each.name for each in (whole / "charts").iterdir()} == {f"{n}-{v}.tgz" for n, v in locked().items()}


def test_a_lock_of_other_dependencies_is_refused(known: Repositories, tmp_path: Path) -> None:
    folder = copied(tmp_path)
    about = (folder / "Chart.yaml").read_text(encoding="utf-8")
    (folder / "Chart.yaml").write_text(about.replace("^1.6.0", "^1.6.1"), encoding="utf-8")
    assert "out of sync" in known.helm("dependency", "build", "--skip-refresh", str(folder)).stderr


def test_both_are_off(known: Repositories, whole: Path, tmp_path: Path) -> None:
    made = rendered(known, whole, {}, tmp_path)
    assert not [each for each in made if each["metadata"]["name"].endswith("-values")]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("demo", {}),
        ("my-milvus", {}),
        ("demo", {"milvus": {"fullnameOverride": "vectors"}}),
        ("demo", {"milvus": {"nameOverride": "store", "service": {"port": 19531}}}),
    ],
)
def test_milvus_is_asked_where_it_is(
    known: Repositories, whole: Path, tmp_path: Path, name: str, values: Values
) -> None:
    made = rendered(known, whole, merged(MILVUS, values), tmp_path, name)
    (service,) = (each for each in made if each.get("spec", {}).get("selector", {}).get("component") == "standalone")
    config = yaml.safe_load(only(made, "ConfigMap", "-query")["data"]["hirag.yaml"])
    port = service["spec"]["ports"][0]["port"]
    assert config["vectors"]["uri"] == f"http://{service['metadata']['name']}:{port}"
    labels = {key: each for key, each in service["spec"]["selector"].items() if key != "component"}
    rule = {"to": [{"podSelector": {"matchLabels": labels}}], "ports": [{"port": 19530, "protocol": "TCP"}]}
    assert rule in only(made, "NetworkPolicy", "-query")["spec"]["egress"]


def test_milvus_is_one_pod_that_asks_for_a_password(known: Repositories, whole: Path, tmp_path: Path) -> None:
    values = given(rendered(known, whole, MILVUS, tmp_path), "milvus")
    assert values["cluster"] == {"enabled": False}
    assert values["pulsarv3"] == {"enabled": False}
    security = yaml.safe_load(values["extraConfigFiles"]["user.yaml"])["common"]["security"]
    assert security == {"authorizationEnabled": True}
    (variable,) = values["standalone"]["extraEnv"]
    assert variable["valueFrom"] == {"secretKeyRef": {"name": "milvus-root", "key": "password"}}


def test_the_operator_keeps_to_its_namespace(known: Repositories, whole: Path, tmp_path: Path) -> None:
    values = {"kuberay-operator": {"enabled": True}, "build": {"once": True, "inputs": ["s3://bucket/docs"]}}
    made = rendered(known, whole, values, tmp_path)
    assert given(made, "kuberay-operator")["singleNamespaceInstall"] is True
    (_, operator) = only(made, "NetworkPolicy", "-build")["spec"]["ingress"]
    labels = only(made, "Deployment", "operator")["spec"]["template"]["metadata"]["labels"]
    assert operator["from"][0]["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_chart_without_them(known: Repositories, tmp_path: Path) -> None:
    """For where no repository is within reach: nothing is fetched, and it renders."""
    script = ROOT / "tools/helm/package.sh"
    subprocess.run([script, str(tmp_path)], check=True, capture_output=True)
    (package,) = tmp_path.glob("hirag-dist-*.tgz")
    assert only(rendered(known, package, {}, tmp_path), "Deployment")
    for name, values in (("milvus", MILVUS), ("kuberay-operator", {"kuberay-operator": {"enabled": True}})):
        (tmp_path / "values.yaml").write_text(yaml.safe_dump(merged(LEAST, values)), encoding="utf-8")
        done = known.helm("template", "demo", str(package), "--values", str(tmp_path / "values.yaml"))
        assert f"{name}.enabled: this package was made without that chart" in done.stderr
