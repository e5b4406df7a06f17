"""Faults of rendered objects by the schemas of Kubernetes, KubeRay, the Prometheus operator and cert-manager."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import yaml

from tests.deploy import kuberay
from tests.deploy.charts import SOURCE, Object, pod_templates

kubernetes_validate = pytest.importorskip("kubernetes_validate")


def _supported() -> tuple[str, ...]:
    about = yaml.safe_load((SOURCE / "Chart.yaml").read_text(encoding="utf-8"))
    oldest = int(about["kubeVersion"].removeprefix(">=1.").split(".")[0])
    newest = int(kubernetes_validate.latest_version().split(".")[1])
    return tuple(f"1.{minor}" for minor in range(oldest, newest + 1))


VERSIONS = _supported()
"""Of Kubernetes: from the oldest that Chart.yaml takes to the newest whose schemas are there."""


@cache
def _models() -> dict[tuple[str, str], Any]:
    from cloudcoil.models.cert_manager import v1 as certificates
    from cloudcoil.models.prometheus_operator import v1 as monitoring

    return {
        ("monitoring.coreos.com/v1", "ServiceMonitor"): monitoring.ServiceMonitor,
        ("monitoring.coreos.com/v1", "PrometheusRule"): monitoring.PrometheusRule,
        ("cert-manager.io/v1", "Certificate"): certificates.Certificate,
    }


def faults(found: Object, version: str) -> list[str]:
    """Return what a version of Kubernetes, or the resource's own definition, finds wrong."""
    return list(_faults(json.dumps(found, sort_keys=True), version))


@cache
def _faults(text: str, version: str) -> tuple[str, ...]:
    found = json.loads(text)
    if found["kind"] == "RayJob":
        pods = [_of_kubernetes(_as_object(template), version) for _, template in pod_templates(found)]
        return (*kuberay.faults(found), *(fault for each in pods for fault in each))
    if model := _models().get((found["apiVersion"], found["kind"])):
        return tuple(_of_model(found, model))
    return tuple(_of_kubernetes(found, version))


def _as_object(template: Object) -> Object:
    """Return a pod template as an object of its own. KubeRay sets a restart policy of its own where there is none."""
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "ray"}, "template": template}


def _of_kubernetes(found: Object, version: str) -> list[str]:
    try:
        kubernetes_validate.validate(found, version, strict=True)
    except (kubernetes_validate.ValidationError, kubernetes_validate.SchemaNotFoundError) as error:
        return [f"{version}: {found['kind']}: {str(error)[:300]}"]
    return []


def _of_model(found: Object, model: Any) -> list[str]:
    try:
        read = model.model_validate(found)
    except ValueError as error:
        return [str(error)[:300]]
    kept = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return [f"{found['kind']}: no such key: {path}" for path in _lost(found, kept)]


def _lost(given: Any, kept: Any, path: str = "") -> list[str]:
    """Return the paths of what is not in `kept`: the models pass over keys that they do not know."""
    if isinstance(given, dict):
        if not isinstance(kept, dict):
            return [path]
        return [
            lost
            for key, value in given.items()
            for lost in (_lost(value, kept[key], f"{path}.{key}") if key in kept else [f"{path}.{key}"])
        ]
    if isinstance(given, list):
        pairs = zip(given, kept, strict=True)
        return [lost for number, (one, other) in enumerate(pairs) for lost in _lost(one, other, f"{path}[{number}]")]
    return []
