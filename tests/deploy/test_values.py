"""Values of the chart and of its configuration: all are known, shown, and checked by the schema or refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from textwrap import dedent
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from hirag_dist.composition.models import BUILD_ROLES, check_prices
from hirag_dist.config.model import Config
from tests.deploy.charts import (
    INLINE,
    RAY,
    ROOT,
    SOURCE,
    Chart,
    Values,
    configurations,
    merged,
    only,
    read_config,
)
from tests.deploy.switches import GATEWAYS
from tools.chart import OWN_KEYS

SCHEMA = json.loads((SOURCE / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((SOURCE / "values.yaml").read_text(encoding="utf-8"))


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += keys(kind, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def test_every_key_of_the_configuration_is_known() -> None:
    """But for those that the chart sets itself."""
    defaults = Config().model_dump(mode="json", warnings=False)
    for owner, names in OWN_KEYS.items():
        section = defaults[owner.removesuffix("Config").lower()] if owner != "Config" else defaults
        for name in names:
            del section[name]
    assert not list(jsonschema.Draft7Validator(SCHEMA).iter_errors(merged(DEFAULTS, {"config": defaults})))
    of_config = jsonschema.Draft7Validator({"$ref": "#/definitions/Config", "definitions": SCHEMA["definitions"]})
    for dotted in keys(Config):
        close = dotted[:-1] + ("x" if dotted[-1] != "x" else "y")
        assert not of_config.is_valid(merged({close: 1})), close


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("config.chunk_tokens", 8),  # below its bound
        ("config.stop", "papre"),
        ("config.service.processes", 0),  # would count the cores of the node
        ("config.service.drain_s", "${D}"),  # the grace period follows from it
        ("config.prompts", "/p"),  # the chart's own
        ("config.execution.ray_address", "auto"),
        ("config.llm.endpoints.main.max_conccurent", 3),
        ("config.llm.roles.extract", [{"endpoint": "a", "wieght": 1}]),
        ("query.replcas", 2),
        ("query.cache.size", "20 GB"),
        ("fullnameOverride", "x" * 33),
        ("index.uri", "file:///data/i"),
        ("build.ray.cpu.maxReplicas", 0),
    ],
)
def test_wrong_values(chart: Chart, dotted: str, value: Any) -> None:
    said = chart.refusal({dotted: value})
    assert "values don't meet the specifications of the schema" in said
    assert dotted.rsplit(".", 1)[-1] in said or "endpoints" in said


def test_variables_stand_for_numbers(chart: Chart, tmp_path: Path) -> None:
    endpoint = {"base_url": "https://m/v1", "model": "m", "rpm": "${RPM}", "max_concurrent": "${AT_ONCE:-8}"}
    llm = {"endpoints": {"main": endpoint}, "roles": {"answer": "main"}}
    objects = chart.render({"config.llm": llm, "config.max_layers": "${DEEP}"})
    written = only(objects, "ConfigMap", "-query")["data"]["hirag.yaml"]
    config = read_config(written, tmp_path, {"RPM": "500", "DEEP": "2"})
    made = config.llm.endpoints["main"]
    assert (made.rpm, made.max_concurrent, config.max_layers) == (500.0, 8, 2)


def test_the_examples_of_the_docs(chart: Chart, tmp_path: Path) -> None:
    """What is shown alone is put over the tutorial's values, as its reader has them."""
    found: list[tuple[str, Values]] = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        for block in re.findall(r"^ *```yaml\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
            values = yaml.safe_load(dedent(block))
            if isinstance(values, dict) and values.keys() <= DEFAULTS.keys() and set(values) != {"callers"}:  # a file
                found.append((path.name, values))
    (tutorial,) = [values for name, values in found if name == "kubernetes-first.md"]
    assert {name for name, _ in found} >= {"kubernetes.md", "sizing.md"}
    for _, values in found:
        whole = merged(tutorial, values)
        objects = chart.render(whole)
        assert {"RayJob", "CronJob", "Deployment"} <= {each["kind"] for each in objects}
        for text in configurations(objects):
            config = read_config(text, tmp_path, {"LLM_KEY": "k"})
            check_prices(config, (*BUILD_ROLES, "embed"), whole["build"]["maxUsd"])


MAIN: Values = {"base_url": "https://m/v1", "model": "m"}
INGRESS: Values = {"query.ingress": {"enabled": True, "hosts": ["a.example"]}}

REFUSED: dict[str, tuple[Values, str]] = {
    "a folder without a volume": ({"index.uri": "/data/i"}, "set storage.existingClaim"),
    "credentials in a URI": ({"index.uri": "s3://id:secret@bucket/i"}, "must hold no credentials"),
    "a key in values": (
        {"config.llm.endpoints.main": MAIN | {"api_key": "sk-1"}},
        "config.llm.endpoints.main.api_key: write ${NAME}",
    ),
    "Milvus Lite": ({"config.vectors.backend": "milvus-lite"}, "belongs to one process"),
    "a variable that is set": (
        {"secretEnv": [{"name": "HOME", "secretName": "s", "secretKey": "k"}]},
        "secretEnv and build.inline.pod.env must leave out HOME",
    ),
    "credentials in an endpoint": (
        {"config.llm.endpoints.main": MAIN | {"base_url": "https://id:pw@m/v1"}},
        "config.llm.endpoints.main.base_url must hold no credentials",
    ),
    "an Ingress that nothing passes": (INGRESS, "say where the pods are that serve query.ingress"),
    "certificates that end before the pods": (
        GATEWAYS | INGRESS | {"tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}}},
        "do not reach them: use query.service.type LoadBalancer",
    ),
    "a page in the clear": ({"query.page.enabled": True}, "a page beyond loopback needs TLS"),
    "nothing to build": ({"build.once": True}, "build.inputs: say what is indexed"),
    "a budget spent twice": (
        RAY | {"build.maxUsd": 5, "build.backoffLimit": 1},
        "another would spend as much again",
    ),
    "a limit without a price": (
        RAY | {"build.maxUsd": 5, "config.llm": {"endpoints": {"main": MAIN}, "roles": {"report": "main"}}},
        "give config.llm.endpoints.main.price.input and .output",
    ),
    "kernels without Ray": (INLINE | {"config.kernels": "gpu"}, "needs config.execution.executor: ray"),
    "workers that never come": (
        RAY | {"build.ray.autoscaling.enabled": False},
        "set minReplicas of its workers",
    ),
    "a question from nobody": ({"test.question": "Who?"}, "nobody may ask unknown"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(chart: Chart, case: str) -> None:
    values, said = REFUSED[case]
    assert said in chart.refusal(values)
