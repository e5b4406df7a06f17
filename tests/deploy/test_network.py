"""Network policies, services, and names in certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.charts import Chart, merged, only, pod_templates
from tests.deploy.rendered import INLINE, RAY, pod, ports


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
        "traces_endpoint": "http://collector:4318/v1/traces",
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
