"""Faults of rendered objects by the schemas of Kubernetes, KubeRay, Gateway API, the Prometheus operator, cert-manager.

The schemas are those of the package kubernetes-validate, in its strict form: a key that they do not have is a fault.
Its own `validate` reads a version's definitions, a megabyte, for each object; here a version is read once.

That of Gateway API routes (gateway.networking.k8s.io/v1) is restated from its types (apis/v1: GRPCRoute and HTTPRoute,
in the standard channel since 1.1 and 1.0), stricter than they are: a key that is not here is a fault, so that what the
chart begins to use must be looked up first.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import jsonschema
import pytest
import yaml
from referencing import Registry, Resource

from tests.deploy import kuberay
from tests.deploy.charts import SOURCE, Object, pod_templates
from tests.deploy.kuberay import exact

kubernetes = pytest.importorskip("kubernetes_validate.utils")


def _supported() -> tuple[str, ...]:
    about = yaml.safe_load((SOURCE / "Chart.yaml").read_text(encoding="utf-8"))
    oldest = int(about["kubeVersion"].removeprefix(">=1.").split(".")[0])
    newest = int(kubernetes.latest_version().split(".")[1])
    return tuple(f"1.{minor}" for minor in range(oldest, newest + 1))


VERSIONS = _supported()
"""Of Kubernetes: from the oldest that Chart.yaml takes to the newest whose schemas are there."""


@cache
def _models() -> dict[tuple[str, str], Any]:
    from cloudcoil.models.cert_manager import v1 as certificates
    from cloudcoil.models.prometheus_operator import v1 as monitoring

    return {
        ("monitoring.coreos.com/v1", "ServiceMonitor"): monitoring.ServiceMonitor,
        ("monitoring.coreos.com/v1", "PodMonitor"): monitoring.PodMonitor,
        ("monitoring.coreos.com/v1", "PrometheusRule"): monitoring.PrometheusRule,
        ("cert-manager.io/v1", "Certificate"): certificates.Certificate,
    }


def faults(found: Object, version: str) -> list[str]:
    """Return the faults of an object by the schema of a Kubernetes version, or by the resource's own definition."""
    return list(_faults(json.dumps(found, sort_keys=True), version))


@cache
def _faults(text: str, version: str) -> tuple[str, ...]:
    found = json.loads(text)
    if found["kind"] == "RayJob":
        pods = [_of_kubernetes(_as_object(template), version) for _, template in pod_templates(found)]
        return (*kuberay.faults(found), *(fault for each in pods for fault in each))
    if found["apiVersion"].startswith("gateway.networking.k8s.io/"):
        return tuple(f"{each.json_path}: {each.message[:200]}" for each in _ROUTES.iter_errors(found))
    if model := _models().get((found["apiVersion"], found["kind"])):
        return tuple(_of_model(found, model))
    return tuple(_of_kubernetes(found, version))


def _as_object(template: Object) -> Object:
    """Return a pod template as an object of its own. KubeRay sets a restart policy of its own where there is none."""
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "ray"}, "template": template}


@cache
def _definitions(version: str) -> tuple[str, Registry]:
    """Return the folder of a version's schemas, and what they refer to."""
    (full,) = {each for each in kubernetes.all_versions() if kubernetes.major_minor(each) == version}
    folder = f"kubernetes-json-schema/v{full}-local-strict"
    shared = Resource.from_contents(kubernetes.schema_contents(f"{folder}/_definitions.json", version))
    return folder, shared @ Registry()


@cache
def _validator(kind: str, api_version: str, version: str) -> jsonschema.Draft202012Validator | None:
    """Return the validator of a kind, or None if the version of Kubernetes does not have it."""
    folder, registry = _definitions(version)
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", api_version)  # networking.k8s.io/v1 -> networking-v1
    try:
        schema = kubernetes.schema_contents(f"{folder}/{kind.lower()}-{group}.json", version)
    except FileNotFoundError:
        return None
    return jsonschema.Draft202012Validator(schema, registry=Resource.from_contents(schema) @ registry)


def _of_kubernetes(found: Object, version: str) -> list[str]:
    validator = _validator(found["kind"], found["apiVersion"], version)
    if validator is None:
        return [f"{version}: there is no {found['kind']} of {found['apiVersion']}"]
    best = jsonschema.exceptions.best_match(validator.iter_errors(found))
    return [] if best is None else [f"{version}: {found['kind']}: {best.json_path}: {best.message[:300]}"]


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


_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_HOST = {"type": "string", "maxLength": 253, "pattern": rf"^(\*\.)?{_LABEL}(\.{_LABEL})*$"}
_PARENT = exact(["name"], group=_NAME, kind=_NAME, namespace=_NAME, name=_NAME, sectionName=_NAME, port=_PORT)
_RULE = exact(
    ["backendRefs"],
    backendRefs={"type": "array", "minItems": 1, "items": exact(["name", "port"], name=_NAME, port=_PORT)},
)
_ROUTE = exact(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "gateway.networking.k8s.io/v1"},
    kind={"enum": ["GRPCRoute", "HTTPRoute"]},
    metadata={"type": "object", "required": ["name"]},
    spec=exact(
        ["parentRefs", "rules"],
        parentRefs={"type": "array", "minItems": 1, "maxItems": 32, "items": _PARENT},
        hostnames={"type": "array", "maxItems": 16, "items": _HOST},
        rules={"type": "array", "minItems": 1, "maxItems": 16, "items": _RULE},
    ),
)
_ROUTES = jsonschema.Draft202012Validator(_ROUTE)
