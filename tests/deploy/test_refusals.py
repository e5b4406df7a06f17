"""Values that the chart refuses, with the reason."""

from __future__ import annotations

import pytest

from tests.deploy.charts import Chart, Values, merged
from tests.deploy.switches import GATEWAYS

BUILD: Values = {"build": {"once": True, "inputs": ["s3://bucket/docs"]}}


MAIN: Values = {"base_url": "https://m/v1", "model": "m"}

REFUSED: dict[str, tuple[Values, str]] = {
    "a folder without a volume": ({"index": {"uri": "/data/i"}}, "set storage.existingClaim"),
    "credentials in a URI": ({"index": {"uri": "s3://id:secret@bucket/i"}}, "must hold no credentials"),
    "a key in values": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"api_key": "sk-1"}}}}},
        "config.llm.endpoints.main.api_key: write ${NAME}",
    ),
    "Milvus Lite": ({"config": {"vectors": {"backend": "milvus-lite"}}}, "belongs to one process"),
    "a variable that is set": (
        {"secretEnv": [{"name": "HOME", "secretName": "s", "secretKey": "k"}]},
        "secretEnv and build.inline.pod.env must leave out HOME",
    ),
    "credentials in an endpoint": (
        {"config": {"llm": {"endpoints": {"main": MAIN | {"base_url": "https://id:pw@m/v1"}}}}},
        "config.llm.endpoints.main.base_url must hold no credentials",
    ),
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


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(chart: Chart, case: str) -> None:
    values, said = REFUSED[case]
    assert said in chart.refusal(values)
