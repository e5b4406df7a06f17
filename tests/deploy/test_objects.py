"""Pods of the service, and what holds for all pods."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hirag_dist.composition.serving import server_options
from hirag_dist.config.loader import load_config
from tests.deploy.charts import Chart, Values, merged, only, pod_templates
from tests.deploy.rendered import INLINE, RAY, config_of, pod


@pytest.mark.parametrize(
    ("service", "grace"),
    [({}, 10 + 30 + 15), ({"drain_s": 0, "drain_delay_s": 0}, 15), ({"drain_s": 20.5, "drain_delay_s": 2}, 23 + 15)],
)
def test_the_grace_period_covers_the_drain(chart: Chart, service: Values, grace: int) -> None:
    assert pod(chart.render({"config": {"service": service}}))["terminationGracePeriodSeconds"] == grace


def test_a_roll_takes_no_pod_before_another_answers(chart: Chart) -> None:
    found = only(chart.render({}), "Deployment")["spec"]
    assert found["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert found["replicas"] == 2
    assert "replicas" not in only(chart.render({"query": {"autoscaling": {"enabled": True}}}), "Deployment")["spec"]


def test_probes_speak_grpc_unless_the_service_speaks_tls(chart: Chart) -> None:
    plain = pod(chart.render({}))["containers"][0]
    assert plain["readinessProbe"]["grpc"] == plain["startupProbe"]["grpc"] == {"port": 50051}
    encrypted = pod(chart.render({"tls": {"existingSecret": "t"}}))["containers"][0]
    assert encrypted["readinessProbe"]["httpGet"] == encrypted["startupProbe"]["httpGet"]
    assert encrypted["readinessProbe"]["httpGet"] == {"port": "metrics", "path": "/ready"}
    for container in (plain, encrypted):
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] == 600


def test_the_service_listens_where_the_pod_says(chart: Chart, tmp_path: Path) -> None:
    """With the files in place: `serve` takes the configuration as it is mounted."""
    values = {"tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}}}
    objects = chart.render(values)
    written = tmp_path / "hirag.yaml"
    written.write_text(yaml.safe_dump(config_of(objects, "query")), encoding="utf-8")
    options = server_options(load_config(str(written), {}).config)
    container = pod(objects)["containers"][0]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == {
        "grpc": int(options.listen.rsplit(":", 1)[1]),
        "metrics": int(options.metrics_listen.rsplit(":", 1)[1]) if options.metrics_listen else 0,
    }
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    for path in (options.callers_file, options.tls_cert, options.tls_key, options.tls_client_ca):
        assert path is not None
        assert str(Path(path).parent) in mounted
    assert config_of(objects, "query")["service"]["cache_dir"] in mounted


def test_a_changed_configuration_rolls_the_pods(chart: Chart) -> None:
    def checksum(values: Values) -> str:
        annotations = only(chart.render(values), "Deployment")["spec"]["template"]["metadata"]["annotations"]
        return str(annotations["checksum/config"])

    assert checksum({}) == checksum({"config": {"execution": {"workers": 3}}})  # of builds alone
    assert checksum({}) != checksum({"config": {"retrieval": {"top_n": 5}}})


@pytest.mark.parametrize(("size", "bytes_"), [("10Gi", 10 * 2**30), ("2.5E3", 2500)])
def test_the_limit_of_the_cache_is_a_share_of_any_quantity(chart: Chart, size: str, bytes_: int) -> None:
    found = config_of(chart.render({"query": {"cache": {"size": size, "storageClass": "fast"}}}), "query")
    assert found["service"]["cache_bytes"] == pytest.approx(0.95 * bytes_, rel=1e-9)


def test_every_pod_can_be_placed(chart: Chart) -> None:
    """Every pod can be scheduled on tainted and special nodes."""
    placed = [{"key": "dedicated", "operator": "Exists"}]
    where = {"tolerations": placed, "nodeSelector": {"kubernetes.io/arch": "amd64"}, "priorityClassName": "high"}
    ray = {"head": {"pod": where}, "cpu": {"pod": where}}
    values = {"query": {"pod": where}, "build": {"schedule": {"enabled": True}, "inline": {"pod": where}, "ray": ray}}
    for executor in RAY, INLINE:
        objects = chart.render(merged(executor, values))
        for part, template in [each for found in objects for each in pod_templates(found)]:
            assert template["spec"].items() >= where.items(), part


def test_names_stay_texts(chart: Chart) -> None:
    """A secret may be called 123, and a key on."""
    values = {
        "secretEnv": [{"name": "A", "secretName": "123", "secretKey": "on"}],
        "callers": {"existingSecret": "1e3"},
        "image": {"pullSecrets": ["007"]},
    }
    found = pod(chart.render(values))
    (variable,) = (each for each in found["containers"][0]["env"] if each["name"] == "A")
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "123", "key": "on"}
    assert found["imagePullSecrets"] == [{"name": "007"}]
    assert {"secretName": "1e3", "defaultMode": 0o440} in [each.get("secret") for each in found["volumes"]]


def test_secrets_are_named_and_never_made(chart: Chart) -> None:
    values = {
        "secretEnv": [{"name": "LLM_KEY", "secretName": "llm", "secretKey": "key"}],
        "s3": {"existingSecret": "s3", "region": "eu-central-1"},
    }
    objects = chart.render(merged(RAY, values))
    for part, template in [each for found in objects for each in pod_templates(found)]:
        for container in template["spec"]["containers"]:
            given = {variable["name"]: variable for variable in container.get("env", ())}
            if part == "submitter" or template["metadata"]["labels"]["app.kubernetes.io/component"] in (
                "test",
                "build-submit",
            ):
                assert "LLM_KEY" not in given
                continue
            assert given["LLM_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "llm", "key": "key"}}
            assert given["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "s3"
            assert given["AWS_REGION"]["value"] == "eu-central-1"
