"""Objects of builds: the RayJob and the Job, their rights, and what decides that a build is another."""

from __future__ import annotations

import json

import pytest
import typer

from hirag_dist.cli._command_line import add_command
from tests.deploy.charts import Chart, Values, merged, only, pod_templates
from tests.deploy.rendered import INLINE, RAY, config_of


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
        ({"config": {"execution": {"workers": 3}}}, {"workers": 3}),
        ({"build": {"ray": {"gpu": CARDS}}}, {"workers": 4 * 2, "gpu_workers": 2}),
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


def test_large_numbers_and_nulls_reach_the_configuration(chart: Chart) -> None:
    endpoint = {"base_url": "https://m/v1", "model": "m", "tpm": 150_000_000, "temperature": None}
    written = config_of(chart.render({"config": {"llm": {"endpoints": {"main": endpoint}}, "seed": 1 << 53}}), "query")
    assert written["llm"]["endpoints"]["main"] == endpoint
    assert written["seed"] == 1 << 53


def test_what_follows_a_build(chart: Chart) -> None:
    values = {"build": {"prune": {"enabled": True, "keep": 2}, "retryLetters": True, "maxUsd": 5}}
    order = json.loads(only(chart.render(merged(RAY, values)), "ConfigMap", "-build")["data"]["order.json"])
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
    objects = chart.render(merged(INLINE, {"build": {"schedule": {"enabled": True}}}))
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
    (mount,) = (
        each
        for each in job["spec"]["rayClusterSpec"]["autoscalerOptions"]["volumeMounts"]
        if each["name"] == "api-token"
    )
    assert mount["mountPath"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    fixed = {"build": {"ray": {"autoscaling": {"enabled": False}, "cpu": {"minReplicas": 1}}}}
    (_, _), (_, head), *_ = pod_templates(only(chart.render(merged(RAY, fixed)), "RayJob"))
    assert "api-token" not in {volume["name"] for volume in head["spec"]["volumes"]}
