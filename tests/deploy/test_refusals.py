"""Values that the chart refuses, with the reason."""

from __future__ import annotations

import json

import pytest

from tests.deploy.charts import Chart, Values, merged
from tests.deploy.switches import GATEWAYS

BUILD: Values = {"build": {"once": True, "inputs": ["s3://bucket/docs"]}}

GPU: Values = {"build": {"ray": {"gpu": {"enabled": True, "image": {"repository": "g"}}}}}

MAIN: Values = {"base_url": "https://m/v1", "model": "m"}

REFUSED: dict[str, tuple[Values, str]] = {
    "a folder without a volume": ({"index": {"uri": "/data/i"}}, "set storage.existingClaim"),
    "a folder elsewhere": (
        {"index": {"uri": "/srv/i"}, "storage": {"existingClaim": "c"}},
        "is not under storage.mountPath",
    ),
    "credentials in a URI": ({"index": {"uri": "s3://id:secret@bucket/i"}}, "must hold no credentials"),
    "a key in values": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"api_key": "sk-1"}}}}},
        "config.llm.endpoints.main.api_key: write ${NAME}",
    ),
    "a token in values": ({"config": {"vectors": {"token": "t"}}}, "config.vectors.token: write ${NAME}"),
    "no Milvus to use": ({"config": {"vectors": {"backend": "milvus"}}}, "give config.vectors.uri"),
    "Milvus Lite": ({"config": {"vectors": {"backend": "milvus-lite"}}}, "belongs to one process"),
    "no image": ({"image": {"repository": ""}}, "image.repository: say where the image is"),
    "labels that select": ({"commonLabels": {"app.kubernetes.io/name": "x"}}, "pods are selected by it"),
    "a variable that is set": (
        {"secretEnv": [{"name": "HOME", "secretName": "s", "secretKey": "k"}]},
        "secretEnv and build.inline.pod.env must leave out HOME",
    ),
    "a variable of Ray's that is set": (
        {"build": {"ray": {"head": {"pod": {"env": [{"name": "RAY_JOB_STOP_WAIT_TIME_S", "value": "1"}]}}}}},
        "build.ray.head.pod.env must leave out RAY_JOB_STOP_WAIT_TIME_S",
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
    "more processes than CPUs": ({"config": {"service": {"processes": 3}}}, "3 share the CPUs of query.resources, 2"),
    "a load balancer for pods": ({"query": {"service": {"type": "LoadBalancer"}}}, "name the addresses, such as"),
    "a volume over the image's folders": (
        {"storage": {"existingClaim": "c", "mountPath": "/tmp"}, "index": {"uri": "/tmp/i"}},
        "storage.mountPath: /tmp is the image's own",
    ),
    "credentials in an endpoint": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"base_url": "https://id:pw@m/v1"}}}}},
        "config.llm.endpoints.main.base_url must hold no credentials",
    ),
    "a roll that fails before a pod can be ready": (
        {"query": {"startupSeconds": 3600}},
        "query.progressDeadlineSeconds must be above",
    ),
    "an Ingress without names": (merged(GATEWAYS, {"query": {"ingress": {"enabled": True}}}), "query.ingress.hosts"),
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
    "a page that is not let in": (
        {
            "query": {"page": {"enabled": True}},
            "tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}},
        },
        "the page must show the service a certificate too",
    ),
    "two certificates": (
        {"tls": {"existingSecret": "t", "certManager": {"enabled": True, "issuer": {"name": "i"}}}},
        "choose either",
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
    "a limit without a price": (
        merged(
            BUILD,
            {"build": {"maxUsd": 5}, "config": {"llm": {"endpoints": {"main": MAIN}, "roles": {"report": "main"}}}},
        ),
        "give config.llm.endpoints.main.price.input and .output",
    ),
    "cards that idle": (merged(BUILD, merged(GPU, {"config": {"kernels": "cpu"}})), "a group that nothing would use"),
    "kernels without cards": (merged(BUILD, {"config": {"kernels": "cupy"}}), "set build.ray.gpu.enabled"),
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


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(chart: Chart, case: str) -> None:
    values, said = REFUSED[case]
    assert said in chart.refusal(values)
