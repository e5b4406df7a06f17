"""Accepted values of the chart and of its configuration, and refused ones with their reasons."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import BaseModel

from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from tests.deploy.charts import ROOT, SOURCE, Chart, Values, merged, only
from tests.deploy.switches import GATEWAYS
from tools.chart import OWN_KEYS, stale

SCHEMA = json.loads((SOURCE / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((SOURCE / "values.yaml").read_text(encoding="utf-8"))


def test_what_is_written_is_fresh() -> None:
    assert stale() == []


def unsaid(schema: dict[str, Any], values: Any, prefix: str = "") -> list[str]:
    """Return the keys that a schema knows and the values do not show."""
    schema = SCHEMA["definitions"][schema["$ref"].rsplit("/", 1)[1]] if "$ref" in schema else schema
    missing = []
    for name, inner in schema.get("properties", {}).items():
        if name not in values:
            missing.append(f"{prefix}{name}")
        elif isinstance(values[name], dict):
            missing += unsaid(inner, values[name], f"{prefix}{name}.")
    return missing


def test_every_value_of_the_chart_is_shown() -> None:
    """But for the configuration, and what an image of its own leaves to the first one."""
    own = {name: each for name, each in SCHEMA["properties"].items() if name != "config"}
    images = {f"{part}.image.{key}" for part in ("query", "build.ray.gpu") for key in ("pullPolicy", "pullSecrets")}
    assert set(unsaid({"properties": own}, DEFAULTS)) == images


def test_the_readme_has_a_line_for_every_value() -> None:
    page = (SOURCE / "README.md").read_text(encoding="utf-8")
    for line in (
        "| `build.ray.cpu.maxReplicas` | `4` |  |",
        '| `query.cache.size` | `"10Gi"` |  |',
        '| `build.incomplete` | `"fail"` | accept: exit code 3 (a snapshot with dead letters) counts as success |',
        "| `build.prune` |  | remove old snapshots and their Milvus collections after each successful build |",
    ):
        assert line in page


def test_the_least_is_enough(chart: Chart) -> None:
    assert chart.render({})


@pytest.mark.parametrize("name", ["index.uri", "callers.existingSecret"])
def test_what_must_be_given(chart: Chart, name: str) -> None:
    section, key = name.split(".")
    assert name in chart.refusal({section: {key: ""}})


def keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    found = []
    for name, field in model.model_fields.items():
        kind: Any = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found += keys(kind, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    return found


def set_in(values: Values, dotted: str, value: Any) -> Values:
    for key in reversed(dotted.split(".")):
        value = {key: value}
    return merged(values, value)


def refused(values: Values) -> list[str]:
    return [error.message for error in jsonschema.Draft7Validator(SCHEMA).iter_errors(values)]


def test_every_key_of_the_configuration_is_known() -> None:
    """But for those that the chart sets itself."""
    defaults = Config().model_dump(mode="json", warnings=False)
    for owner, names in OWN_KEYS.items():
        section = defaults[owner.removesuffix("Config").lower()] if owner != "Config" else defaults
        for name in names:
            del section[name]
    assert not refused(merged(DEFAULTS, {"config": defaults}))
    schema = {"$ref": "#/definitions/Config", "definitions": SCHEMA["definitions"]}
    of_config = jsonschema.Draft7Validator(schema)
    for dotted in keys(Config):
        close = dotted[:-1] + ("x" if dotted[-1] != "x" else "y")
        assert not of_config.is_valid(set_in({}, close, 1)), close


def test_the_configuration_that_init_writes() -> None:
    """But for its address: the pods' is the chart's."""
    config = yaml.safe_load((ROOT / "hirag_dist/config/hirag.yaml").read_text(encoding="utf-8"))
    del config["service"]["listen"]
    assert not refused(merged(DEFAULTS, {"config": config}))


@pytest.mark.parametrize(
    ("dotted", "value"),
    [
        ("chunk_tokens", 8),  # below its bound
        ("stop", "papre"),
        ("service.processes", 65),
        ("service.processes", 0),  # would count the cores of the node
        ("service.drain_s", "${D}"),  # the grace period follows from it
        ("service.listen", "127.0.0.1:1"),  # the chart's own
        ("prompts", "/p"),
        ("execution.ray_address", "auto"),
        ("retrieval.top_n", "twenty"),
        ("llm.endpoints.main.kind", "azure"),
        ("llm.endpoints.main.max_conccurent", 3),
        ("llm.roles.extract", [{"endpoint": "a", "wieght": 1}]),
        ("clustering", []),
    ],
)
def test_wrong_values_of_the_configuration(chart: Chart, dotted: str, value: Any) -> None:
    last = dotted.rsplit(".", 1)[-1]
    said = chart.refusal(set_in({}, f"config.{dotted}", value))
    assert "values don't meet the specifications of the schema" in said
    assert "config" in said
    assert last.split(".")[0] in said or "endpoints" in said


def test_variables_stand_for_numbers(chart: Chart, tmp_path: Path) -> None:
    endpoint = {"base_url": "https://m/v1", "model": "m", "rpm": "${RPM}", "max_concurrent": "${AT_ONCE:-8}"}
    values = {
        "config": {"llm": {"endpoints": {"main": endpoint}, "roles": {"answer": "main"}}, "max_layers": "${DEEP}"}
    }
    objects = chart.render(values)
    written = tmp_path / "hirag.yaml"
    written.write_text(only(objects, "ConfigMap", "-query")["data"]["hirag.yaml"], encoding="utf-8")
    config = load_config(str(written), {"RPM": "500", "DEEP": "2"}).config
    made = config.llm.endpoints["main"]
    assert (made.rpm, made.max_concurrent, config.max_layers) == (500.0, 8, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"replicas": 2},
        {"query": {"replcas": 2}},
        {"query": {"cache": {"size": "20 GB"}}},
        {"image": {"digest": "sha256:abc"}},
        {"secretEnv": [{"name": "A-B", "secretName": "s", "secretKey": "k"}]},
        {"build": {"incomplete": "ignore"}},
        {"fullnameOverride": "x" * 33},
        {"fullnameOverride": "1-rag"},
        {"index": {"uri": "file:///data/i"}},
        {"build": {"ray": {"cpu": {"maxReplicas": 0}}}},
        {"proxy": {"https": "proxy:3128"}},
        {"build": {"prune": {"olderThan": "a day"}}},
        {"build": {"ttlSecondsAfterFinished": 0}},
        {"networkPolicy": {"gateways": {}}},
    ],
    ids=lambda values: next(iter(values)),
)
def test_wrong_values_of_its_own(chart: Chart, values: Values) -> None:
    assert "values don't meet the specifications of the schema" in chart.refusal(values)


BUILD: Values = {"build": {"once": True, "inputs": ["s3://bucket/docs"]}}
GPU: Values = {"build": {"ray": {"gpu": {"enabled": True, "image": {"repository": "g"}}}}}
MAIN: Values = {"base_url": "https://m/v1", "model": "m"}

REFUSED: dict[str, tuple[Values, str]] = {
    "a folder without a volume": ({"index": {"uri": "/data/i"}}, "set storage.existingClaim"),
    "a folder elsewhere": (
        {"index": {"uri": "/srv/i"}, "storage": {"existingClaim": "c"}},
        "is not under storage.mountPath",
    ),
    "a folder beside the volume's": (
        {"index": {"uri": "/database/i"}, "storage": {"existingClaim": "c"}},
        "is not under storage.mountPath",
    ),
    "credentials in a URI": ({"index": {"uri": "s3://id:secret@bucket/i"}}, "must hold no credentials"),
    "credentials in an input": (
        {"build": {"once": True, "inputs": ["s3://a/b", "s3://id:secret@bucket/d"]}},
        "must hold no credentials",
    ),
    "a key in values": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"api_key": "sk-1"}}}}},
        "config.llm.endpoints.main.api_key: write ${NAME}",
    ),
    "a key as a default": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"api_key": "${K:-sk-1}"}}}}},
        "a key has no place in values",
    ),
    "a token in values": ({"config": {"vectors": {"token": "t"}}}, "config.vectors.token: write ${NAME}"),
    "no Milvus to use": ({"config": {"vectors": {"backend": "milvus"}}}, "give config.vectors.uri"),
    "Milvus Lite": ({"config": {"vectors": {"backend": "milvus-lite"}}}, "belongs to one process"),
    "no image": ({"image": {"repository": ""}}, "image.repository: say where the image is"),
    "no image for cards": (
        merged(BUILD, merged(GPU, {"build": {"ray": {"gpu": {"image": {"repository": ""}}}}})),
        "say where the image with CUDA is",
    ),
    "labels that select": ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "pods are selected by it"),
    "labels of a pod that select": (
        {"query": {"pod": {"labels": {"app.kubernetes.io/component": "x"}}}},
        "pods are selected by it",
    ),
    "a variable that is set": (
        {"secretEnv": [{"name": "HOME", "secretName": "s", "secretKey": "k"}]},
        "secretEnv and build.inline.pod.env must leave out HOME",
    ),
    "a variable of S3's that is set": (
        {"s3": {"region": "r"}, "query": {"pod": {"env": [{"name": "AWS_REGION", "value": "r"}]}}},
        "must leave out AWS_REGION",
    ),
    "a variable of a proxy that is set": (
        {
            "proxy": {"https": "http://proxy:3128"},
            "query": {"pod": {"env": [{"name": "HTTPS_PROXY", "value": "http://p:1"}]}},
        },
        "query.pod.env must leave out HTTPS_PROXY",
    ),
    "a variable of the authorities' that is set": (
        {
            "caBundle": {"configMap": "c"},
            "secretEnv": [{"name": "SSL_CERT_FILE", "secretName": "s", "secretKey": "k"}],
        },
        "must leave out SSL_CERT_FILE",
    ),
    "a variable of Ray's that is set": (
        {"build": {"ray": {"head": {"pod": {"env": [{"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": "1"}]}}}}},
        "build.ray.head.pod.env must leave out RAY_JOB_STOP_WAIT_TIME_S",
    ),
    "a variable of KubeRay's that is set": (
        {"build": {"ray": {"auth": {"mode": "token"}, "cpu": {"pod": {"env": [{"name": "RAY_AUTH_TOKEN"}]}}}}},
        "build.ray.cpu.pod.env must leave out RAY_AUTH_TOKEN",
    ),
    "a variable that is set twice": (
        {
            "secretEnv": [{"name": "KEY", "secretName": "s", "secretKey": "k"}],
            "build": {"inline": {"pod": {"env": [{"name": "KEY", "value": "v"}]}}},
        },
        "build.inline.pod.env must leave out KEY",
    ),
    "a host behind a registry": (
        {"global": {"imageRegistry": "mirror.corp"}, "image": {"repository": "registry.example.com/hirag-dist"}},
        "image.repository: leave out the host",
    ),
    "a host with a port behind a registry": (
        {"global": {"imageRegistry": "mirror.corp"}, "build": {"ray": {"gpu": {"image": {"repository": "r:5000/g"}}}}},
        "build.ray.gpu.image.repository: leave out the host",
    ),
    "more processes than CPUs": ({"config": {"service": {"processes": 3}}}, "3 share the CPUs of query.resources, 2"),
    "two processes of half a CPU": (
        {"query": {"resources": {"requests": {"cpu": "500m"}}}},
        "2 share the CPUs of query.resources, 500m",
    ),
    "a load balancer for pods": ({"query": {"service": {"type": "LoadBalancer"}}}, "name the addresses, such as"),
    "a port of the nodes for nobody": (
        {"query": {"service": {"type": "NodePort"}}, "networkPolicy": {"callers": []}},
        "who comes through query.service.type NodePort is no pod",
    ),
    "a volume over the image's folders": (
        {"storage": {"existingClaim": "c", "mountPath": "/tmp"}, "index": {"uri": "/tmp/i"}},
        "storage.mountPath: /tmp is the image's own",
    ),
    "credentials in an endpoint": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"base_url": "https://id:pw@m/v1"}}}}},
        "config.llm.endpoints.main.base_url must hold no credentials",
    ),
    "credentials of Milvus": (
        {"config": {"vectors": {"backend": "milvus", "uri": "https://root:Milvus@milvus:19530"}}},
        "config.vectors.uri must hold no credentials",
    ),
    "credentials of traces": (
        {"config": {"service": {"traces_endpoint": "https://id:${PW:-pw}@traces/v1/traces"}}},
        "config.service.traces_endpoint must hold no credentials",
    ),
    "credentials of a proxy": (
        {"proxy": {"https": "http://id:pw@proxy:3128"}},
        "proxy.https must hold no credentials",
    ),
    "a roll that fails before a pod can be ready": (
        {"query": {"startupSeconds": 3600}},
        "query.progressDeadlineSeconds must be above",
    ),
    "an Ingress without names": (merged(GATEWAYS, {"query": {"ingress": {"enabled": True}}}), "query.ingress.hosts"),
    "a route to nowhere": (merged(GATEWAYS, {"query": {"grpcRoute": {"enabled": True}}}), "say which Gateway"),
    "an Ingress that nothing passes": (
        {"query": {"ingress": {"enabled": True, "hosts": ["a.example"]}}},
        "say where the pods are that serve query.ingress",
    ),
    "certificates that end before the pods": (
        merged(
            GATEWAYS,
            {
                "query": {"ingress": {"enabled": True, "hosts": ["a.example"]}},
                "tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}},
            },
        ),
        "do not reach them: use query.service.type LoadBalancer",
    ),
    "a page in the clear": ({"query": {"page": {"enabled": True}}}, "a page beyond loopback needs TLS"),
    "a page for everybody": (
        {"query": {"page": {"enabled": True}}, "tls": {"existingSecret": "t"}, "callers": {"existingSecret": ""}},
        "say who may call",
    ),
    "a page that is not let in": (
        {
            "query": {"page": {"enabled": True}},
            "tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}},
        },
        "the page must show the service a certificate too",
    ),
    "an Ingress of no page": (
        merged(GATEWAYS, {"query": {"page": {"ingress": {"enabled": True, "hosts": ["a.example"]}}}}),
        "needs query.page.enabled",
    ),
    "two certificates": (
        {"tls": {"existingSecret": "t", "certManager": {"enabled": True, "issuer": {"name": "i"}}}},
        "choose either",
    ),
    "no issuer": ({"tls": {"certManager": {"enabled": True}}}, "who issues the certificate"),
    "a certificate without a name": (
        {"tls": {"certManager": {"enabled": True, "internalNames": False, "issuer": {"name": "i"}}}},
        "give the certificate a name",
    ),
    "an operator anywhere": (
        merged(BUILD, {"build": {"ray": {"operatorNamespace": ""}}}),
        "name the namespace of KubeRay's operator",
    ),
    "certificates of clients alone": (
        {"tls": {"clientCa": {"existingSecret": "c"}}},
        "a certificate of the service too",
    ),
    "nothing to build": ({"build": {"once": True}}, "build.inputs: say what is indexed"),
    "a budget spent twice": (
        merged(BUILD, {"build": {"maxUsd": 5, "backoffLimit": 1}}),
        "another would spend as much again",
    ),
    "cards that idle": (merged(BUILD, merged(GPU, {"config": {"kernels": "cpu"}})), "a group that nothing would use"),
    "cards for nobody": (
        merged(BUILD, merged(GPU, {"config": {"execution": {"gpu_workers": 0}}})),
        "a group that nothing would use",
    ),
    "two cards a pod": (
        merged(BUILD, merged(GPU, {"build": {"ray": {"gpu": {"resources": {"limits": {"nvidia.com/gpu": 2}}}}}})),
        "leave out nvidia.com/gpu: a pod has one card",
    ),
    "kernels without cards": (merged(BUILD, {"config": {"kernels": "cupy"}}), "set build.ray.gpu.enabled"),
    "workers without cards": (
        merged(BUILD, {"config": {"execution": {"gpu_workers": 2}}}),
        "set build.ray.gpu.enabled",
    ),
    "cards that never come": (
        merged(BUILD, merged(GPU, {"build": {"ray": {"autoscaling": {"enabled": False}, "cpu": {"minReplicas": 1}}}})),
        "set minReplicas of its workers",
    ),
    "kernels without Ray": (
        merged(BUILD, {"config": {"kernels": "gpu", "execution": {"executor": "inline"}}}),
        "needs config.execution.executor: ray",
    ),
    "workers that never come": (
        merged(BUILD, {"build": {"ray": {"autoscaling": {"enabled": False}}}}),
        "set minReplicas of its workers",
    ),
    "a question from nobody": ({"test": {"question": "Who?"}}, "nobody may ask unknown"),
}


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"service": {"traces_endpoint": "https://id:${PW}@traces/v1/traces"}}},
        {"global": {"imageRegistry": "mirror.corp"}, "image": {"repository": "team/hirag-dist"}},
        {"config": {"service": {"processes": 4}}, "query": {"resources": {"limits": {"cpu": 3.5}}}},
        {"config": {"service": {"processes": "${PROCESSES}"}}},
        {"query": {"service": {"type": "LoadBalancer"}}, "networkPolicy": {"enabled": False}},
        {
            "query": {"service": {"type": "NodePort"}},
            "networkPolicy": {"callers": [{"podSelector": {}}, {"ipBlock": {"cidr": "10.0.0.0/8"}}]},
        },
        {"proxy": {"https": "http://p:1"}, "query": {"pod": {"env": [{"name": "SSL_CERT_FILE", "value": "/more"}]}}},
    ],
    ids=lambda values: json.dumps(values)[:60],
)
def test_taken_though_close_to_what_is_refused(chart: Chart, values: Values) -> None:
    assert chart.render(values)


@pytest.mark.parametrize("dotted", ["build.ray", "build.ray.head", "query.pod", "monitoring", "placement"])
def test_a_section_that_is_taken_away(chart: Chart, dotted: str) -> None:
    said = chart.refusal(set_in({}, dotted, None))
    assert "values don't meet the specifications of the schema" in said
    assert dotted.rsplit(".", 1)[-1] in said


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(chart: Chart, case: str) -> None:
    values, said = REFUSED[case]
    assert said in chart.refusal(values)


def test_the_example_of_the_docs(chart: Chart, tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorials/kubernetes-first.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```yaml\n# values.yaml\n(.*?)```", page, re.DOTALL)
    objects = chart.render(yaml.safe_load(example))
    assert {"RayJob", "CronJob", "Deployment"} <= {found["kind"] for found in objects}
    for found in objects:
        if found["kind"] == "ConfigMap" and "hirag.yaml" in found["data"]:
            (tmp_path / "hirag.yaml").write_text(found["data"]["hirag.yaml"], encoding="utf-8")
            load_config(str(tmp_path / "hirag.yaml"), {"LLM_KEY": "k"})
