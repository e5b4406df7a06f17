"""Values of two builds, and parts of rendered objects, for the tests of what the chart renders."""

from __future__ import annotations

from typing import Any

import yaml

from tests.deploy.charts import Object, Values, merged, only

RAY: Values = {"build": {"once": True, "inputs": ["s3://bucket/docs"]}}

INLINE: Values = merged(RAY, {"config": {"execution": {"executor": "inline"}}})


def pod(objects: list[Object]) -> Object:
    return only(objects, "Deployment")["spec"]["template"]["spec"]


def config_of(objects: list[Object], component: str) -> dict[str, Any]:
    return yaml.safe_load(only(objects, "ConfigMap", f"-{component}")["data"]["hirag.yaml"])


def ports(policy: Object, direction: str) -> set[int | str]:
    return {port["port"] for rule in policy["spec"][direction] for port in rule.get("ports", ())}
