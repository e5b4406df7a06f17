"""Network policies, services, and names in certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

<<<<<<< HEAD
from tests.deploy.charts import Chart, merged, only, pod_templates
from tests.deploy.rendered import INLINE, RAY, pod, ports
=======
from hirag_dist.cli._command_line import add_command
from hirag_dist.config.loader import load_config
from tests.deploy.charts import Chart, Values, merged, only, pod_templates
from tests.deploy.rendered import INLINE, RAY, config_of, pod, ports
from tests.deploy.switches import GATEWAYS
>>>>>>> main


def test_what_may_be_reached_follows_from_the_configuration(chart: Chart) -> None:
    endpoints = {
        "a": {"base_url": "http://vllm:8000/v1", "model": "m"},
        "b": {"base_url": "http://plain/v1", "model": "m"},
        "c": {"base_url": "https://api.example.com/v1", "model": "m"},
        "d": {"base_url": "${ELSEWHERE}", "model": "m"},
    }
    config = {
        "llm": {"endpoints": endpoints},
        "vectors": {"backend": "milvus", "uri": "http://milvus:19530"},
        "service": {"traces_endpoint": "http://collector:4318/v1/traces"},
    }
    objects = chart.render(merged(RAY, {"config": config, "networkPolicy": {"egressPorts": [9000, 443]}}))
    reached = ports(only(objects, "NetworkPolicy", "-query"), "egress")
    assert reached == {53, 443, 9000, 19530, 4318, 8000, 80}
    assert ports(only(objects, "NetworkPolicy", "-build"), "egress") == reached | {6443}


@pytest.mark.parametrize("colon", [":", "%3a"])
def test_an_object_store_of_ones_own_may_be_reached(chart: Chart, colon: str) -> None:
    uri = f"s3://bucket/index?endpoint_override=minio.storage{colon}9000&scheme=http"
    objects = chart.render({"index": {"uri": uri}})
    assert ports(only(objects, "NetworkPolicy", "-query"), "egress") == {53, 443, 9000}


def test_only_rays_own_pods_and_the_operator_reach_ray(chart: Chart) -> None:
    first, second = only(chart.render(RAY), "NetworkPolicy", "-build")["spec"]["ingress"]
    assert [list(peer) for peer in first["from"]] == [["podSelector"]]
    assert {port["port"] for port in second["ports"]} == {8265, 52365}
    (operator,) = second["from"]  # in one namespace: a tenant's pod may have any label
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kuberay"}}
    assert operator["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}
    assert only(chart.render(INLINE), "NetworkPolicy", "-build")["spec"]["ingress"] == []


def test_what_is_trusted_and_the_way_out_reach_every_pod(chart: Chart) -> None:
    values = {
        "caBundle": {"configMap": "trust", "key": "all.pem"},
        "proxy": {"https": "http://proxy.example.com:3128", "none": ".svc"},
        "envFrom": [{"configMapRef": {"name": "models"}}],
    }
    for executor in RAY, INLINE:
        objects = chart.render(merged(executor, values))
        assert 3128 in ports(only(objects, "NetworkPolicy", "-build"), "egress")
        for part, template in [each for found in objects for each in pod_templates(found)]:
            kind = template["metadata"]["labels"]["app.kubernetes.io/component"]
            if part == "submitter" or kind in ("test", "build-submit"):
                continue  # they speak within the cluster alone
            main = template["spec"]["containers"][0]
            given = {each["name"]: each.get("value") for each in main["env"]}
            (mounted,) = (each["mountPath"] for each in main["volumeMounts"] if each["name"] == "ca-bundle")
            assert Path(str(given["SSL_CERT_FILE"])).parent == Path(mounted)
            assert given["REQUESTS_CA_BUNDLE"] == given["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] == given["SSL_CERT_FILE"]
            assert given["HTTPS_PROXY"] == given["https_proxy"] == "http://proxy.example.com:3128"
            assert given["NO_PROXY"] == ".svc"
            assert main["envFrom"] == values["envFrom"]


<<<<<<< HEAD
=======
CERTIFIED: Values = {"test": {"question": "Who?", "tokenSecret": {"name": "t"}}}


@pytest.mark.parametrize(
    ("values", "given"),
    [
        ({}, []),
        ({"tls": {"existingSecret": "s"}}, ["--ca", "/etc/hirag/tls/ca.crt"]),
        (
            {"tls": {"existingSecret": "s"}, "test": {"ca": "", "serverName": "rag.example.com"}},
            ["--tls", "--server-name", "rag.example.com"],
        ),
        (
            {
                "tls": {
                    "certManager": {
                        "enabled": True,
                        "issuer": {"name": "acme"},
                        "internalNames": False,
                        "extraDnsNames": ["rag.example.com", "ask.example.com"],
                    }
                }
            },
            ["--tls", "--server-name", "rag.example.com"],
        ),
    ],
)
def test_the_test_trusts_what_signed_the_certificate(chart: Chart, values: Values, given: list[str]) -> None:
    found = only(chart.render(merged(CERTIFIED, values)), "Pod")["spec"]
    arguments = found["containers"][1]["args"]
    asked = arguments[arguments.index("--server") + 2 : arguments.index("--token-file")]
    assert asked == given
    assert ("ca" in [each["name"] for each in found["volumes"]]) == ("--ca" in given)
    app = typer.Typer()
    add_command(app, "query")
    typer.main.get_command(app).make_context("query", arguments[1:])


>>>>>>> main
def test_a_certificate_for_every_name_that_clients_use(chart: Chart) -> None:
    tls = {"certManager": {"enabled": True, "issuer": {"name": "ca"}, "extraDnsNames": ["rag.example.com"]}}
    objects = chart.render({"tls": tls})
    certificate = only(objects, "Certificate")["spec"]
    names = certificate["dnsNames"]
    for service in ("demo-hirag-dist-query", "demo-hirag-dist-headless"):
        assert only(objects, "Service", service)
        assert {service, f"{service}.search.svc", f"{service}.search.svc.cluster.local"} <= set(names)
    assert "rag.example.com" in names
    (volume,) = (each for each in pod(objects)["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == certificate["secretName"]
