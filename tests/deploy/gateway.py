"""Schema of Gateway API routes (gateway.networking.k8s.io/v1), as far as the chart uses them.

Restated from its types (apis/v1: GRPCRoute and HTTPRoute, in the standard channel since 1.1 and 1.0), stricter than
they are: a key that is not here is a fault, so that what the chart begins to use must be looked up first.
"""

from __future__ import annotations

from typing import Any

import jsonschema

_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_HOST = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}


def _exact(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


_PARENT = _exact(["name"], group=_NAME, kind=_NAME, namespace=_NAME, name=_NAME, sectionName=_NAME, port=_PORT)
_RULE = _exact(
    ["backendRefs"],
    backendRefs={"type": "array", "minItems": 1, "items": _exact(["name", "port"], name=_NAME, port=_PORT)},
)
_ROUTE = _exact(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "gateway.networking.k8s.io/v1"},
    kind={"enum": ["GRPCRoute", "HTTPRoute"]},
    metadata={"type": "object", "required": ["name"]},
    spec=_exact(
        ["parentRefs", "rules"],
        parentRefs={"type": "array", "minItems": 1, "maxItems": 32, "items": _PARENT},
        hostnames={"type": "array", "maxItems": 16, "items": _HOST},
        rules={"type": "array", "minItems": 1, "maxItems": 16, "items": _RULE},
    ),
)
_VALIDATOR = jsonschema.Draft202012Validator(_ROUTE)


def faults(route: dict[str, Any]) -> list[str]:
    """Return the faults of a GRPCRoute or an HTTPRoute."""
    return [f"{error.json_path}: {error.message[:200]}" for error in _VALIDATOR.iter_errors(route)]
