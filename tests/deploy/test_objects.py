"""Pods, services, network policies and builds that the chart renders, and the images that they run."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer

from hirag_dist.cli._command_line import add_command
from hirag_dist.composition.serving import server_options
from tests.deploy.charts import (
    INLINE,
    RAY,
    ROOT,
    Chart,
    Object,
    Values,
    config_of,
    configurations,
    only,
    pod,
    pod_templates,
    ports,
    read_config,
)


@pytest.mark.parametrize(
    ("service", "grace"),
    [({}, 10 + 30 + 15), ({"drain_s": 0, "drain_delay_s": 0}, 15), ({"drain_s": 20.5, "drain_delay_s": 2}, 23 + 15)],
)
def test_the_grace_period_covers_the_drain(chart: Chart, service: Values, grace: int) -> None:
    assert pod(chart.render({"config.service": service}))["terminationGracePeriodSeconds"] == grace


def test_a_roll_takes_no_pod_before_another_answers(chart: Chart) -> None:
    found = only(chart.render({}), "Deployment")["spec"]
    assert found["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert found["replicas"] == 2
    assert "replicas" not in only(chart.render({"query.autoscaling.enabled": True}), "Deployment")["spec"]


def test_probes_speak_grpc_unless_the_service_speaks_tls(chart: Chart) -> None:
    plain = pod(chart.render({}))["containers"][0]
    assert plain["readinessProbe"]["grpc"] == plain["startupProbe"]["grpc"] == {"port": 50051}
    encrypted = pod(chart.render({"tls.existingSecret": "t"}))["containers"][0]
    assert encrypted["readinessProbe"]["httpGet"] == encrypted["startupProbe"]["httpGet"]
    assert encrypted["readinessProbe"]["httpGet"] == {"port": "metrics", "path": "/ready"}
    for container in (plain, encrypted):
        startup = container["startupProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] == 600


def test_the_service_listens_where_the_pod_says(chart: Chart, tmp_path: Path) -> None:
    """With the files in place: `serve` takes the configuration as it is mounted."""
    objects = chart.render({"tls": {"existingSecret": "t", "clientCa": {"existingSecret": "c"}}})
    (text,) = configurations(objects)
    options = server_options(read_config(text, tmp_path))
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

    assert checksum({}) == checksum({"config.execution.workers": 3})  # of builds alone
    assert checksum({}) != checksum({"config.retrieval.top_n": 5})


@pytest.mark.parametrize(("size", "bytes_"), [("10Gi", 10 * 2**30), ("2.5E3", 2500)])
def test_the_limit_of_the_cache_is_a_share_of_any_quantity(chart: Chart, size: str, bytes_: int) -> None:
    found = config_of(chart.render({"query.cache": {"size": size, "storageClass": "fast"}}), "query")
    assert found["service"]["cache_bytes"] == pytest.approx(0.95 * bytes_, rel=1e-9)


def test_every_pod_can_be_placed(chart: Chart) -> None:
    """On tainted and special nodes."""
    placed = [{"key": "dedicated", "operator": "Exists"}]
    where = {"tolerations": placed, "nodeSelector": {"kubernetes.io/arch": "amd64"}, "priorityClassName": "high"}
    values = dict.fromkeys(("query.pod", "build.inline.pod", "build.ray.head.pod", "build.ray.cpu.pod"), where)
    values |= {"build.schedule.enabled": True}
    for executor in RAY, INLINE:
        objects = chart.render(executor | values)
        for part, template in [each for found in objects for each in pod_templates(found)]:
            assert template["spec"].items() >= where.items(), part


def test_names_stay_texts(chart: Chart) -> None:
    """A secret may be called 123, and a key on."""
    values = {
        "secretEnv": [{"name": "A", "secretName": "123", "secretKey": "on"}],
        "callers.existingSecret": "1e3",
        "image.pullSecrets": ["007"],
    }
    found = pod(chart.render(values))
    (variable,) = (each for each in found["containers"][0]["env"] if each["name"] == "A")
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "123", "key": "on"}
    assert found["imagePullSecrets"] == [{"name": "007"}]
    assert {"secretName": "1e3", "defaultMode": 0o440} in [each.get("secret") for each in found["volumes"]]


def stays_within(part: str, template: Object) -> bool:
    """Return whether the containers of a pod speak within the cluster alone."""
    component = template["metadata"]["labels"]["app.kubernetes.io/component"]
    return part == "submitter" or component in ("test", "build-submit")


def test_secrets_are_named_and_never_made(chart: Chart) -> None:
    values = {
        "secretEnv": [{"name": "LLM_KEY", "secretName": "llm", "secretKey": "key"}],
        "s3": {"existingSecret": "s3", "region": "eu-central-1"},
    }
    objects = chart.render(RAY | values)
    for part, template in [each for found in objects for each in pod_templates(found)]:
        for container in template["spec"]["containers"]:
            given = {variable["name"]: variable for variable in container.get("env", ())}
            if stays_within(part, template):
                assert "LLM_KEY" not in given
                continue
            assert given["LLM_KEY"]["valueFrom"] == {"secretKeyRef": {"name": "llm", "key": "key"}}
            assert given["AWS_SECRET_ACCESS_KEY"]["valueFrom"]["secretKeyRef"]["name"] == "s3"
            assert given["AWS_REGION"]["value"] == "eu-central-1"


def test_what_may_be_reached_follows_from_the_configuration(chart: Chart) -> None:
    endpoints = {
        "a": {"base_url": "http://vllm:8000/v1", "model": "m"},
        "b": {"base_url": "http://plain/v1", "model": "m"},
        "c": {"base_url": "https://api.example.com/v1", "model": "m"},
        "d": {"base_url": "${ELSEWHERE}", "model": "m"},
    }
    values = {
        "config.llm.endpoints": endpoints,
        "config.vectors": {"backend": "milvus", "uri": "http://milvus:19530"},
        "config.traces_endpoint": "http://collector:4318/v1/traces",
        "networkPolicy.egressPorts": [9000, 443],
    }
    objects = chart.render(RAY | values)
    reached = ports(only(objects, "NetworkPolicy", "-query"), "egress")
    assert reached == {53, 443, 9000, 19530, 4318, 8000, 80}
    assert ports(only(objects, "NetworkPolicy", "-build"), "egress") == reached | {6443}


@pytest.mark.parametrize("colon", [":", "%3a"])
def test_an_object_store_of_ones_own_may_be_reached(chart: Chart, colon: str) -> None:
    uri = f"s3://bucket/index?endpoint_override=minio.storage{colon}9000&scheme=http"
    objects = chart.render({"index.uri": uri})
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
        objects = chart.render(executor | values)
        assert 3128 in ports(only(objects, "NetworkPolicy", "-build"), "egress")
        for part, template in [each for found in objects for each in pod_templates(found)]:
            if stays_within(part, template):
                continue
            main = template["spec"]["containers"][0]
            given = {each["name"]: each.get("value") for each in main["env"]}
            (mounted,) = (each["mountPath"] for each in main["volumeMounts"] if each["name"] == "ca-bundle")
            assert Path(str(given["SSL_CERT_FILE"])).parent == Path(mounted)
            assert given["REQUESTS_CA_BUNDLE"] == given["GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"] == given["SSL_CERT_FILE"]
            assert given["HTTPS_PROXY"] == given["https_proxy"] == "http://proxy.example.com:3128"
            assert given["NO_PROXY"] == ".svc"
            assert main["envFrom"] == values["envFrom"]


def test_a_certificate_for_every_name_that_clients_use(chart: Chart) -> None:
    wanted = {"enabled": True, "issuer": {"name": "ca"}, "extraDnsNames": ["rag.example.com"]}
    objects = chart.render({"tls.certManager": wanted})
    certificate = only(objects, "Certificate")["spec"]
    names = certificate["dnsNames"]
    for service in ("demo-hirag-dist-query", "demo-hirag-dist-headless"):
        assert only(objects, "Service", service)
        assert {service, f"{service}.search.svc", f"{service}.search.svc.cluster.local"} <= set(names)
    assert "rag.example.com" in names
    (volume,) = (each for each in pod(objects)["volumes"] if each["name"] == "tls")
    assert volume["secret"]["secretName"] == certificate["secretName"]


def test_a_build_is_another_when_what_decides_it_is(chart: Chart) -> None:
    same = {"config.retrieval.top_n": 5, "config.service.drain_s": 1, "query.replicas": 9}
    changed: list[Values] = [
        {"config.max_layers": 2},
        {"build.inputs": ["s3://bucket/others"]},
        {"image.tag": "2"},
        {"build.incomplete": "accept"},
        {"build.ray.preRunningDeadlineSeconds": 60},  # a Job cannot be changed
        {"build.prune.enabled": True},
    ]
    releases = chart.render_many([RAY | values for values in ({}, same, *changed)])
    first, second, *others = (only(objects, "Job")["metadata"]["name"] for objects in releases)
    assert first == second
    assert len({first, *others}) == 1 + len(changed)


CARDS: Values = {"enabled": True, "maxReplicas": 2, "image": {"repository": "g-gpu"}}


@pytest.mark.parametrize(
    ("values", "workers"),
    [
        ({}, {"workers": 4 * 2}),
        ({"config.execution.workers": 3}, {"workers": 3}),
        ({"build.ray.gpu": CARDS}, {"workers": 4 * 2, "gpu_workers": 2}),
    ],
)
def test_as_many_workers_as_the_cluster_can_grow_to(chart: Chart, values: Values, workers: Values) -> None:
    execution = config_of(chart.render(RAY | values), "build")["execution"]
    assert execution == {"executor": "ray", "ray_address": "auto"} | workers


def test_nothing_runs_on_the_head_and_groups_shrink_to_nothing(chart: Chart) -> None:
    for values, groups in (({}, ["cpu"]), ({"build.ray.gpu": CARDS}, ["cpu", "gpu"])):
        spec = only(chart.render(RAY | values), "RayJob")["spec"]
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
    objects = chart.render(RAY | {"build.inputs": nasty})
    entrypoint = only(objects, "RayJob")["spec"]["entrypoint"]
    assert set(entrypoint) <= set("abcdefghijklmnopqrstuvwxyz/. ")
    order = json.loads(only(objects, "ConfigMap", "-build")["data"]["order.json"])
    assert order["build"][:3] == ["index", *nasty]


def test_large_numbers_and_nulls_reach_the_configuration(chart: Chart) -> None:
    endpoint = {"base_url": "https://m/v1", "model": "m", "tpm": 150_000_000, "temperature": None}
    written = config_of(chart.render({"config.llm.endpoints.main": endpoint, "config.seed": 1 << 53}), "query")
    assert written["llm"]["endpoints"]["main"] == endpoint
    assert written["seed"] == 1 << 53


def test_what_follows_a_build(chart: Chart) -> None:
    values = {"build.prune": {"enabled": True, "keep": 2}, "build.retryLetters": True, "build.maxUsd": 5}
    order = json.loads(only(chart.render(RAY | values), "ConfigMap", "-build")["data"]["order.json"])
    where = ["--index", "s3://bucket/index", "--wait", "600"]
    assert order["retry"] == ["retry", *where, "--max-usd", "5"]
    assert order["prune"] == ["prune", *where, "--keep", "2", "--older-than", "1d"]
    app = typer.Typer()
    for name in ("index", "retry", "prune"):
        add_command(app, name)
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for words in order["build"], order["retry"], order["prune"]:
        commands[words[0]].make_context(words[0], [*words[1:], "--config", order["config"]])  # the program takes them


def test_a_schedule_without_ray_needs_no_rights(chart: Chart) -> None:
    objects = chart.render(INLINE | {"build.schedule.enabled": True})
    assert not [each for each in objects if each["kind"] in ("Role", "RoleBinding", "RayJob")]
    once, scheduled = only(objects, "Job")["spec"], only(objects, "CronJob")["spec"]["jobTemplate"]["spec"]
    once["template"]["spec"]["containers"][0]["command"].append("5")  # to leave a night out is no failure
    assert once == scheduled
    assert only(objects, "CronJob")["spec"]["concurrencyPolicy"] == "Forbid"


def test_the_autoscaler_alone_holds_a_token_of_the_api_server(chart: Chart) -> None:
    """It may change every pod of the namespace, and the driver runs what models and documents say."""
    job = only(chart.render(RAY), "RayJob")
    for part, template in pod_templates(job):
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False, part
        assert all(m["name"] != "api-token" for each in spec["containers"] for m in each["volumeMounts"]), part
        assert ("api-token" in {volume["name"] for volume in spec["volumes"]}) is (part == "head")
    mounts = job["spec"]["rayClusterSpec"]["autoscalerOptions"]["volumeMounts"]
    (place,) = (each["mountPath"] for each in mounts if each["name"] == "api-token")
    assert place == "/var/run/secrets/kubernetes.io/serviceaccount"
    fixed = {"build.ray.autoscaling.enabled": False, "build.ray.cpu.minReplicas": 1}
    (_, _), (_, head), *_ = pod_templates(only(chart.render(RAY | fixed), "RayJob"))
    assert "api-token" not in {volume["name"] for volume in head["spec"]["volumes"]}


SCRIPTS = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "deploy/docker").glob("*.sh")}


def test_every_package_is_pinned_by_its_hash() -> None:
    installs = [
        line for name in ("packages.sh", "application.sh") for line in SCRIPTS[name].splitlines() if " install " in line
    ]
    assert len(installs) == 2
    for line in installs:
        assert {"--require-hashes", "--no-deps"} <= set(line.split()) or "/wheels/" in line
    cpu, query, gpu = (locked(name) for name in ("image.txt", "image-query.txt", "image-gpu.txt"))
    assert {"ray", "opencensus"} <= cpu.keys() & gpu.keys()  # opencensus: of ray[default], which takes jobs
    assert not [name for name in cpu if name.startswith(("nvidia-", "cupy"))]
    assert {"cupy-cuda12x", "pylibcugraph-cu12"} <= gpu.keys()
    assert not {"ray", "milvus-lite", "faiss-cpu", "lxml"} & query.keys()
    assert {name: version for name, version in query.items() if cpu.get(name) != version} == {}


def test_the_pods_of_a_cluster_speak_one_language(chart: Chart) -> None:
    """A head of one image and workers of the other: Ray and what it pickles must be the same."""
    cpu, gpu = locked("image.txt"), locked("image-gpu.txt")
    both = cpu.keys() & gpu.keys()
    assert both >= {"ray", "pydantic", "grpcio", "protobuf"}
    assert [name for name in both if cpu[name] != gpu[name]] == []
    assert only(chart.render(RAY), "RayJob")["spec"]["rayClusterSpec"]["rayVersion"] == cpu["ray"]


def locked(name: str) -> dict[str, str]:
    """Return the pinned packages of requirements/, each with a hash: name → version."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9._-]+)==(\S+)(?: ;[^\\\n]*)? \\\n    --hash=sha256:", text, re.MULTILINE)
    assert len(found) == len(re.findall(r"^[a-z0-9]", text, re.MULTILINE))
    return dict(found)
