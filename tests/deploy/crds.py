"""Faults of objects by the makers' own definitions (CustomResourceDefinitions), where the folder HIRAG_CRDS has them.

`tools/crds.sh` fetches those of KubeRay and the Gateway API. They are not part of this repository. Without them the
models of `kuberay` and `gateway` say what is a fault. Rules in CEL are not evaluated.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from tests.deploy.charts import Object


def strict(schema: Any) -> Any:
    """Return a schema by which a key is a fault that the API server would drop.

    >>> strict({"properties": {"a": {}}})["additionalProperties"]
    False
    """
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


@cache
def validators() -> dict[tuple[str, str], jsonschema.Draft202012Validator]:
    """Return the validators by (API version, kind); none without HIRAG_CRDS."""
    folder = os.environ.get("HIRAG_CRDS")
    made = {}
    for path in sorted(Path(folder).glob("*.yaml")) if folder else ():
        spec = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)["spec"]
        for version in spec["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            key = (f"{spec['group']}/{version['name']}", spec["names"]["kind"])
            made[key] = jsonschema.Draft202012Validator(schema)
    return made


def faults(found: Object) -> list[str]:
    """Return the faults of an object; none where no definition of its kind is there."""
    validator = validators().get((found["apiVersion"], found["kind"]))
    errors = validator.iter_errors(found) if validator else ()
    return [f"{found['kind']}: {error.json_path}: {error.message[:200]}" for error in errors]
