"""Checks of objects against the makers' definitions, shown by a definition of one field."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.deploy import crds

SCHEMA = {
    "type": "object",
    "properties": {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    },
}
DEFINITION = {
    "spec": {
        "group": "ray.io",
        "names": {"kind": "Thing"},
        "versions": [{"name": "v1", "schema": {"openAPIV3Schema": SCHEMA}}],
    }
}


def thing(**spec: object) -> dict[str, object]:
    return {"apiVersion": "ray.io/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec}


def test_a_key_that_the_definition_lacks_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thing.yaml").write_text(yaml.safe_dump(DEFINITION), encoding="utf-8")
    monkeypatch.setenv("HIRAG_CRDS", str(tmp_path))
    crds.validators.cache_clear()
    try:
        assert crds.faults(thing(replicas=1)) == []
        assert "replcas" in crds.faults(thing(replcas=1))[0]
        assert "integer" in crds.faults(thing(replicas="1"))[0]
    finally:
        crds.validators.cache_clear()
