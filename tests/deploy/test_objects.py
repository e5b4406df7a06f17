"""Properties of rendered objects beyond their schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from hirag_dist.cli import index, prune, retry
from hirag_dist.cli import query as cli_query
from hirag_dist.composition.serving import server_options
from hirag_dist.config.loader import load_config
from hirag_dist.config.service import ServiceConfig
from tests.deploy.charts import Chart, Object, Values, merged, only, pod_templates
from tests.deploy.switches import GATEWAYS

RAY: Values = {"build": {"once": True, "inputs": ["s3://bucket/docs"]}}
INLINE: Values = merged(RAY, {"config": {"execution": {"executor": "inline"}}})


def pod(objects: list[Object]) -> Object:
    found: Object = only(objects, "Deployment")["spec"]["template"]["spec"]
    return found


def config_of(objects: list[Object], component: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(only(objects, "ConfigMap", f"-{component}")["data"]["hirag.yaml"])
    return found


def ports(policy: Object, direction: str) -> set[int | str]:
    return {port["port"] for rule in policy["spec"][direction] for port in rule.get("ports", ())}


@pytest.mark.parametrize(
    ("service", "grace"),
    [({}, 10 + 30 + 15), ({"drain_s": 0, "drain_delay_s": 0}, 15), ({"drain_s": 20.5, "drain_delay_s": 2}, 23 + 15)],
)
def test_the_grace_period_covers_the_drain(chart: Chart, service: Values, grace: int) -> None:
    assert pod(chart.render({"config": {"service": service}}))["terminationGracePeriodSeconds"] == grace


def test_the_grace_period_covers_the_drain_of_hirag_dist_by_default(chart: Chart) -> None:
    """Keys that are null in values are the program's own defaults."""
    found = pod(chart.render({"config": {"service": {"drain_s": None, "drain_delay_s": None}}}))
    assert found["terminationGracePeriodSeconds"] == ServiceConfig().drain_delay_s + ServiceConfig().drain_s + 15


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


def test_a_build_is_another_when_what_decides_it_is(chart: Chart) -> None:
    def name(values: Values) -> str:
        return str(only(chart.render(merged(RAY, values)), "Job")["metadata"]["name"])

    assert name({}) == name(
        {"config": {"retrieval": {"top_n": 5}, "service": {"drain_s": 1}}, "query": {"replicas": 9}}
    )
    changed = [
        {"config": {"max_layers": 2}},
        {"build": {"inputs": ["s3://bucket/others"]}},
        {"image": {"tag": "2"}},
        {"build": {"incomplete": "accept"}},
        {"build": {"ray": {"preRunningDeadlineSeconds": 60}}},  # a Job cannot be changed
        {"build": {"prune": {"enabled": True}}},
    ]
    assert len({name(values) for values in ({}, *changed)}) == 1 + len(changed)


CARDS: Values = {"enabled": True, "maxReplicas": 2, "image": {"repository": "g-gpu"}}


@pytest.mark.parametrize(
    ("values", "workers"),
    [
        ({}, {"workers": 4 * 2}),
        ({"build": {"ray": {"cpu": {"maxReplicas": 10, "cpus": 8}}}}, {"workers": 80}),
        ({"config": {"execution": {"workers": 3}}}, {"workers": 3}),
        ({"build": {"ray": {"gpu": CARDS}}}, {"workers": 4 * 2, "gpu_workers": 2}),
        (
            {
                "config": {"execution": {"gpu_workers": 1}},
                "build": {"ray": {"gpu": CARDS}},
            },
            {"workers": 4 * 2, "gpu_workers": 1},
        ),
    ],
)
def test_as_many_workers_as_the_cluster_can_grow_to(chart: Chart, values: Values, workers: Values) -> None:
    execution = config_of(chart.render(merged(RAY, values)), "build")["execution"]
    assert execution == {"executor": "ray", "ray_address": "auto"} | workers


def test_nothing_runs_on_the_head_and_groups_shrink_to_nothing(chart: Chart) -> None:
    for values, groups in (({}, ["cpu"]), ({"build": {"ray": {"gpu": CARDS}}}, ["cpu", "gpu"])):
        spec = only(chart.render(merged(RAY, values)), "RayJob")["spec"]
        cluster = spec["rayClusterSpec"]
        assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert [workers["groupName"] for workers in cluster["workerGroupSpecs"]] == groups
        for workers in cluster["workerGroupSpecs"]:
            of_gpu = workers["groupName"] == "gpu"
            assert (workers["minReplicas"], workers["replicas"]) == (0, 0)
            started = workers["rayStartParams"]
            assert (started["num-cpus"], started["num-gpus"]) == (("0", "1") if of_gpu else ("2", "0"))
            container = workers["template"]["spec"]["containers"][0]
            assert ("nvidia.com/gpu" in container["resources"]["limits"]) == of_gpu
            assert ("-gpu:" in container["image"]) == of_gpu
        assert not [key for key in spec if key.startswith("entrypointNum")]  # the driver runs on the head


def test_arguments_pass_no_shell(chart: Chart) -> None:
    nasty = ['s3://bucket/it\'s $(here); `x` "y"', "s3://bucket/ü"]
    objects = chart.render(merged(RAY, {"build": {"inputs": nasty}}))
    entrypoint = only(objects, "RayJob")["spec"]["entrypoint"]
    assert set(entrypoint) <= set("abcdefghijklmnopqrstuvwxyz/. ")
    order = json.loads(only(objects, "ConfigMap", "-build")["data"]["order.json"])
    assert order["build"][:3] == ["index", *nasty]


def test_limits_of_a_build(chart: Chart) -> None:
    limits = {"build": {"maxUsd": 12.5, "maxTokens": 50_000_000, "batch": True, "incomplete": "accept"}}
    order = json.loads(only(chart.render(merged(INLINE, limits)), "ConfigMap", "-build")["data"]["order.json"])
    given = order["build"]
    assert given[given.index("--max-usd") + 1] == "12.5"
    assert given[given.index("--max-tokens") + 1] == "50000000"
    assert "--batch" in given
    assert order["accepted"] == [3]


def test_large_numbers_and_nulls_reach_the_configuration(chart: Chart) -> None:
    endpoint = {"base_url": "https://m/v1", "model": "m", "tpm": 150_000_000, "temperature": None}
    written = config_of(chart.render({"config": {"llm": {"endpoints": {"main": endpoint}}, "seed": 1 << 53}}), "query")
    assert written["llm"]["endpoints"]["main"] == endpoint
    assert written["seed"] == 1 << 53


def test_what_runs_once_is_what_the_schedule_runs(chart: Chart) -> None:
    """A Job makes the RayJob and ends as it does, once and by the schedule: helm, alerts and people ask Jobs."""
    objects = chart.render(merged(RAY, {"build": {"schedule": {"enabled": True}}}))
    once, cron = only(objects, "Job")["spec"], only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
    once["template"]["spec"]["containers"][0]["command"].append("5")  # to leave a night out is no failure
    assert once == cron
    assert only(objects, "RayJob")["metadata"]["name"] == "demo-hirag-dist-run"


def test_what_follows_a_build(chart: Chart) -> None:
    values = {"build": {"prune": {"enabled": True, "keep": 2}, "retryLetters": True, "maxUsd": 5}}
    order = json.loads(only(chart.render(merged(RAY, values)), "ConfigMap", "-build")["data"]["order.json"])
    where = ["--index", "s3://bucket/index", "--wait", "600"]
    assert order["retry"] == ["retry", *where, "--max-usd", "5"]
    assert order["prune"] == ["prune", *where, "--keep", "2", "--older-than", "1d"]
    app = typer.Typer()
    for module in (index, retry, prune):
        module.register(app)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in order["build"], order["retry"], order["prune"]:
        commands[words[0]].make_context(words[0], [*words[1:], "--config", order["config"]])  # the program takes them


def test_a_schedule_without_ray_needs_no_rights(chart: Chart) -> None:
    objects = chart.render(merged(INLINE, {"build": {"schedule": {"enabled": True}}}))
    assert not [each for each in objects if each["kind"] in ("Role", "RoleBinding", "RayJob")]
    once, scheduled = only(objects, "Job")["spec"], only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
    once["template"]["spec"]["containers"][0]["command"].append("5")  # to leave a night out is no failure
    assert once == scheduled
    assert only(objects, "CronJob")["spec"]["concurrencyPolicy"] == "Forbid"


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


@pytest.mark.parametrize("colon", [":", "%3A", "%3a"])
def test_an_object_store_of_ones_own_may_be_reached(chart: Chart, colon: str) -> None:
    uri = f"s3://bucket/index?endpoint_override=minio.storage{colon}9000&scheme=http"
    objects = chart.render({"index": {"uri": uri}})
    assert ports(only(objects, "NetworkPolicy", "-query"), "egress") == {53, 443, 9000}


def test_an_object_store_without_a_port(chart: Chart) -> None:
    def reached(uri: str) -> set[int | str]:
        return ports(only(chart.render({"index": {"uri": uri}}), "NetworkPolicy", "-query"), "egress")

    assert reached("s3://bucket/index?endpoint_override=minio.storage&scheme=http") == {53, 443, 80}
    assert reached("s3://bucket/index?scheme=https&endpoint_override=minio.storage") == {53, 443}


def test_only_rays_own_pods_and_the_operator_reach_ray(chart: Chart) -> None:
    first, second = only(chart.render(RAY), "NetworkPolicy", "-build")["spec"]["ingress"]
    assert [list(peer) for peer in first["from"]] == [["podSelector"]]
    assert {port["port"] for port in second["ports"]} == {8265, 52365}
    (operator,) = second["from"]  # in one namespace: a tenant's pod may have any label
    assert operator["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "kuberay"}}
    assert operator["podSelector"] == {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}}
    assert only(chart.render(INLINE), "NetworkPolicy", "-build")["spec"]["ingress"] == []


def test_ray_asks_for_a_token_everywhere_or_nowhere(chart: Chart) -> None:
    """KubeRay puts mode and token into all of Ray's containers, the submitter's and the autoscaler's with them."""

    def modes(values: Values) -> tuple[Any, set[str | None]]:
        spec = only(chart.render(merged(RAY, values)), "RayJob")["spec"]
        cluster = spec["rayClusterSpec"]
        pods = [template["spec"]["containers"][0] for _, template in pod_templates({"kind": "RayJob", "spec": spec})]
        given = [{v["name"]: v.get("value") for v in c["env"]} for c in (*pods, cluster["autoscalerOptions"])]
        return cluster.get("authOptions"), {each.get("RAY_AUTH_MODE") for each in given}

    assert modes({}) == ({"mode": "token"}, {None})
    assert modes({"build": {"ray": {"auth": {"mode": "disabled"}}}}) == (None, {"disabled"})
    own = {"build": {"ray": {"auth": {"existingSecret": "ray"}}}}
    assert modes(own) == ({"mode": "token", "secretName": "ray"}, {None})


def test_the_autoscaler_alone_holds_a_token_of_the_api_server(chart: Chart) -> None:
    """It may change every pod of the namespace, and the driver runs what models and documents say."""
    job = only(chart.render(RAY), "RayJob")
    for part, template in pod_templates(job):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, part
        assert all(m["name"] != "api-token" for each in spec["containers"] for m in each["volumeMounts"]), part
        assert ("api-token" in {volume["name"] for volume in spec["volumes"]}) is (part == "head")
    (mount,) = (
        each
        for each in job["spec"]["rayClusterSpec"]["autoscalerOptions"]["volumeMounts"]
        if each["name"] == "api-token"
    )
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    fixed = {"build": {"ray": {"autoscaling": {"enabled": False}, "cpu": {"minReplicas": 1}}}}
    (_, _), (_, head), *_ = pod_templates(only(chart.render(merged(RAY, fixed)), "RayJob"))
    assert "api-token" not in {volume["name"] for volume in head["spec"]["volumes"]}


def test_a_queue_sees_the_object_that_runs_the_build(chart: Chart) -> None:
    label = {"kueue.x-k8s.io/queue-name": "builds"}
    values = {"build": {"job": {"labels": label, "annotations": {"a": "b"}}}}
    ray = chart.render(merged(RAY, values))
    metadata = only(ray, "RayJob")["metadata"]
    assert metadata["labels"].items() >= label.items()
    assert metadata["annotations"] == {"a": "b"}
    (job,) = (each for each in ray if each["kind"] == "Job")
    assert not metadata["annotations"].items() <= job["metadata"].get("annotations", {}).items()
    assert not label.items() <= job["metadata"]["labels"].items()
    inline = only(chart.render(merged(INLINE, values)), "Job")["metadata"]
    assert inline["labels"].items() >= label.items()
    assert inline["annotations"] == {"a": "b"}


def test_a_quota_on_cpu_limits_can_be_met(chart: Chart) -> None:
    """Every container has a CPU limit once helperResources and the resources of query and build have one."""
    limit = {"limits": {"cpu": "1"}}
    ray = {part: {"resources": limit} for part in ("head", "cpu", "autoscaling")}
    values = {
        "helperResources": limit,
        "query": {"resources": limit},
        "build": {"inline": {"resources": limit}, "ray": ray},
        "config": {"service": {"processes": 1}},
        "test": {"question": "Who?", "tokenSecret": {"name": "token"}},
    }
    for executor in RAY, INLINE:
        for found in chart.render(merged(executor, values)):
            for part, template in pod_templates(found):
                spec = template["spec"]
                for container in (*spec.get("initContainers", ()), *spec["containers"]):
                    assert container["resources"]["limits"]["cpu"] == "1", (found["kind"], part, container["name"])


def test_the_service_of_a_load_balancer(chart: Chart) -> None:
    service = {"type": "LoadBalancer", "loadBalancerClass": "example.com/internal", "nodePort": 30051}
    values = {"query": {"service": service}, "networkPolicy": {"callers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}}
    spec = only(chart.render(values), "Service", "-query")["spec"]
    assert spec["externalTrafficPolicy"] == "Local"  # the addresses of callers, as ipBlock needs them
    assert spec["loadBalancerClass"] == "example.com/internal"
    assert spec["ports"][0]["nodePort"] == 30051
    inside = only(chart.render({"query": {"service": {"trafficDistribution": "PreferSameZone"}}}), "Service", "-query")
    assert inside["spec"]["trafficDistribution"] == "PreferSameZone"
    assert "externalTrafficPolicy" not in inside["spec"]


@pytest.mark.parametrize(
    ("size", "bytes_"), [("10Gi", 10 * 2**30), ("1Ei", 2**60), ("1e10", 10**10), ("2.5E3", 2500), ("1E", 10**18)]
)
def test_the_limit_of_the_cache_is_a_share_of_any_quantity(chart: Chart, size: str, bytes_: int) -> None:
    found = config_of(chart.render({"query": {"cache": {"size": size, "storageClass": "fast"}}}), "query")
    assert found["service"]["cache_bytes"] == pytest.approx(0.95 * bytes_, rel=1e-9)


def test_an_external_issuer(chart: Chart) -> None:
    issuer = {"name": "pca", "kind": "AWSPCAClusterIssuer", "group": "awspca.cert-manager.io"}
    objects = chart.render({"tls": {"certManager": {"enabled": True, "issuer": issuer}}})
    assert only(objects, "Certificate")["spec"]["issuerRef"] == issuer


def test_further_containers_and_objects(chart: Chart) -> None:
    image = {"image": "registry.example.com/proxy:1"}
    pod_of = {"initContainers": [image | {"name": "first"}], "containers": [image | {"name": "proxy"}]}
    extra = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
    objects = chart.render({"query": {"pod": pod_of}, "extraObjects": [extra]})
    names = {key: [each["name"] for each in pod(objects)[key]] for key in ("initContainers", "containers")}
    assert names["containers"] == ["query", "proxy"]
    assert "first" in names["initContainers"]
    assert only(objects, "ConfigMap", "demo-more")


def test_the_page_is_known_by_the_names_that_lead_to_it(chart: Chart, tmp_path: Path) -> None:
    page = {
        "enabled": True,
        "names": ["rag.internal"],
        "ingress": {"enabled": True, "hosts": ["ask.example.com"]},
        "httpRoute": {"enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["*.example.org"]},
    }
    values = merged(GATEWAYS, {"query": {"page": page}, "tls": {"existingSecret": "t"}})
    objects = chart.render(values)
    (tmp_path / "hirag.yaml").write_text(yaml.safe_dump(config_of(objects, "query")), encoding="utf-8")
    config = load_config(str(tmp_path / "hirag.yaml"), {}).config
    service = "demo-hirag-dist-page"
    assert {"rag.internal", "ask.example.com", "*.example.org", service, f"{service}.search.svc"} <= set(
        config.service.http_names
    )
    ports_of = {port["name"]: port["containerPort"] for port in pod(objects)["containers"][0]["ports"]}
    assert config.service.http == f"0.0.0.0:{ports_of['page']}"
    assert only(objects, "Service", "-page")["spec"]["ports"][0]["targetPort"] == "page"
    opened = {
        port["port"]: rule["from"]
        for rule in only(objects, "NetworkPolicy", "-query")["spec"]["ingress"]
        for port in rule["ports"]
        if rule["from"] == GATEWAYS["networkPolicy"]["gateways"]
    }
    assert set(opened) == {"grpc", "page"}


def test_both_families_of_addresses(chart: Chart) -> None:
    dual = {"query": {"bindAddress": "::", "service": {"ipFamilyPolicy": "PreferDualStack"}}}
    objects = chart.render(dual)
    assert config_of(objects, "query")["service"]["listen"] == "[::]:50051"
    assert config_of(objects, "query")["service"]["metrics_listen"] == "[::]:9464"
    assert only(objects, "Service", "-query")["spec"]["ipFamilyPolicy"] == "PreferDualStack"


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


def test_quotas_outlive_a_container(chart: Chart) -> None:
    found = pod(chart.render({}))
    (mounted,) = (
        each["name"] for each in found["containers"][0]["volumeMounts"] if each["mountPath"] == "/var/lib/hirag"
    )
    (volume,) = (each for each in found["volumes"] if each["name"] == mounted)
    assert "emptyDir" in volume
    assert config_of(chart.render({}), "query")["service"]["state_dir"] == "/var/lib/hirag"


def test_the_driver_is_given_time_to_store_replies(chart: Chart) -> None:
    (_, submitter), (_, head), *_ = pod_templates(only(chart.render(RAY), "RayJob"))
    (wait,) = (each for each in head["spec"]["containers"][0]["env"] if each["name"] == "RAY_JOB_STOP_WAIT_TIME_S")
    assert int(wait["value"]) < head["spec"]["terminationGracePeriodSeconds"]
    assert head["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert submitter["metadata"]["annotations"] == head["metadata"]["annotations"]  # with either the run ends
    watching = only(chart.render(RAY), "Job")["spec"]["template"]["metadata"]
    assert watching["annotations"] == head["metadata"]["annotations"]


def test_the_placement_of_all_pods_and_of_one(chart: Chart) -> None:
    everywhere = {"nodeSelector": {"pool": "search"}, "tolerations": [{"key": "a", "operator": "Exists"}]}
    values = {
        "placement": everywhere | {"dnsConfig": {"nameservers": ["10.0.0.10"]}},
        "query": {"pod": {"nodeSelector": {"pool": "query"}}},
    }
    for executor in RAY, INLINE:
        for found in chart.render(merged(executor, values)):
            for part, template in pod_templates(found):
                spec, labels = template["spec"], template["metadata"]["labels"]
                served = labels["app.kubernetes.io/component"] in ("query", "test")
                assert spec["nodeSelector"]["pool"] == ("query" if served else "search"), part
                assert spec["tolerations"] == everywhere["tolerations"]
                assert spec["dnsConfig"] == {"nameservers": ["10.0.0.10"]}


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


@pytest.mark.parametrize(
    ("query", "asked"),
    [
        ({}, "11364Mi"),  # the cache, /tmp, the compiled code
        ({"cache": {"size": "1500M"}}, "2555Mi"),
        ({"cache": {"storageClass": "fast"}}, "1124Mi"),
        ({"resources": {"requests": {"ephemeral-storage": "3Gi"}}}, "3Gi"),
        ({"resources": None}, "11364Mi"),
    ],
)
def test_the_node_is_asked_for_the_disk_of_the_cache(chart: Chart, query: Values, asked: str) -> None:
    """Else pods are packed onto a node whose disk then fills, and all of them are evicted."""
    resources = pod(chart.render({"query": query}))["containers"][0]["resources"]
    assert resources["requests"]["ephemeral-storage"] == asked


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
    cli_query.register(app)
    typer.main.get_command(app).make_context("query", arguments[1:])


def test_the_authority_of_the_test_may_have_another_key(chart: Chart) -> None:
    values = merged(CERTIFIED, {"tls": {"existingSecret": "s"}, "test": {"ca": "root.pem"}})
    (volume,) = (each for each in only(chart.render(values), "Pod")["spec"]["volumes"] if each["name"] == "ca")
    assert volume["secret"]["items"] == [{"key": "root.pem", "path": "ca.crt"}]


def test_what_is_promised_is_there(chart: Chart) -> None:
    """Sizes that are passed to programs are below those of their volumes."""
    values = {
        "query": {"cache": {"size": "1.5Ti"}},
        "build": {"ray": {"cpu": {"sharedMemory": "3G"}}},
    }
    objects = chart.render(merged(RAY, values))
    assert config_of(objects, "query")["service"]["cache_bytes"] == int(1.5 * 2**40 * 0.95)
    cluster = only(objects, "RayJob")["spec"]["rayClusterSpec"]
    (cpu,) = cluster["workerGroupSpecs"]
    assert cpu["rayStartParams"]["object-store-memory"] == str(int(3e9 * 0.9))
    assert cluster["headGroupSpec"]["rayStartParams"]["object-store-memory"] == str(int(2**30 * 0.9))


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
