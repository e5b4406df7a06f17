"""Alerts and the dashboard: they ask for what the service exports, parse, and alarms go off when they should."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from hirag_dist.service.metrics import Metrics, ProcessFacts, ProcessFactsCollector, WorkerMetrics
from tests.deploy.charts import NAMESPACE, ROOT, SOURCE, Chart, Object, merged, only, tool

ALERTS = {
    "build": {"once": True, "schedule": {"enabled": True}, "inputs": ["s3://bucket/docs"]},
    "monitoring": {
        "prometheusRule": {
            "enabled": True,
            "snapshotAgeHours": 48,
            "runbookUrl": "https://example.com/operations",
        },
        "dashboard": {"enabled": True},
    },
}
OF_KUBERNETES = {  # of kube-state-metrics
    "kube_cronjob_created",
    "kube_cronjob_status_last_successful_time",
    "kube_deployment_status_replicas_unavailable",
    "kube_job_complete",
    "kube_job_created",
    "kube_job_failed",
    "kube_job_info",
    "kube_job_owner",
    "kube_job_status_completion_time",
    "kube_job_status_start_time",
}
_NAME = re.compile(r"\b(?:hirag|kube)_[a-z_]+\b")


@pytest.fixture(scope="module")
def rules(chart: Chart) -> Object:
    found: Object = only(chart.render(ALERTS), "PrometheusRule")["spec"]
    return found


def exported(folder: Path) -> set[str]:
    """Return the names of all samples of a service."""
    registry = CollectorRegistry()
    Metrics(registry)
    ProcessFacts("s", 1.0, 1.0, 1.0, 1.0, 1, False).write(folder, 0)
    registry.register(ProcessFactsCollector(folder))
    families = [*registry.collect(), *WorkerMetrics(folder, 1).registry.collect()]
    names = set()
    for family in families:
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SOURCE / "files/dashboard.json").read_text(encoding="utf-8"))
    return found


def drawn() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_alerts_and_panels_ask_for_what_there_is(rules: Object, tmp_path: Path) -> None:
    there = exported(tmp_path)
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for expression in [*asked, *drawn()]:
        assert set(_NAME.findall(expression)) <= there | OF_KUBERNETES, expression


def test_every_metric_is_on_the_dashboard(tmp_path: Path) -> None:
    shown = {name for expression in drawn() for name in _NAME.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported(tmp_path)}
    assert families == {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}


def test_labels_of_metrics_are_known(rules: Object) -> None:
    """An expression groups and filters by labels of hirag_dist or of Prometheus only."""
    of_kubernetes = {"namespace", "pod", "job_name", "cronjob", "deployment", "condition", "owner_kind", "owner_name"}
    put_on = of_kubernetes | {"service", "le"}
    metrics = vars(Metrics(CollectorRegistry())).values()
    ours = {label for metric in metrics for label in getattr(metric, "_labelnames", ())} | {"snapshot"}
    assert {"method", "reason"} <= ours
    for expression in [*(rule["expr"] for group in rules["groups"] for rule in group["rules"]), *drawn()]:
        named = re.findall(r"([a-z_]+)(?:=~|!=|=)\"", expression)
        named += [name for names in re.findall(r"by \(([^)]*)\)", expression) for name in names.split(", ")]
        assert set(named) <= put_on | ours, expression


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool("promtool"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_alerts_parse(rules: Object, tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    done = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stderr
    rules["groups"][0]["rules"][0]["expr"] += ")"
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    rules["groups"][0]["rules"][0]["expr"] = rules["groups"][0]["rules"][0]["expr"][:-1]
    assert promtool(tmp_path, "check", "rules", "rules.yaml").returncode != 0


def test_panels_parse(tmp_path: Path) -> None:
    filled = [
        each.replace("$__rate_interval", "5m").replace("$namespace", "n").replace("$service", ".+") for each in drawn()
    ]
    group = {"name": "panels", "rules": [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(filled)]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
    done = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(filled)} rules found" in done.stdout


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


DEPLOYED = f'namespace="{NAMESPACE}",deployment="demo-hirag-dist-query"'


OURS = f'namespace="{NAMESPACE}",service="demo-hirag-dist-metrics",pod="a"'
DAY = 86_400

IN = f'namespace="{NAMESPACE}"'
CRON = f'{IN},cronjob="demo-hirag-dist-build"'
SUCCESS = "kube_cronjob_status_last_successful_time"


def job(
    name: str,
    created: int = 1,
    *,
    failed: bool = False,
    complete: bool = False,
    cron: str = "demo-hirag-dist-build",
    owner: str = "CronJob",
    more: str = "",
) -> dict[str, str]:
    """Return the series of kube-state-metrics for a Job, for half an hour.

    Args:
        created: seconds; promtool's time begins at 0.
        failed, complete: its conditions; a Job that has neither is running.
        cron: the name of its owner.
        more: further labels, as of a scrape.
    """
    of = f'{IN},job_name="{name}"{more}'
    series = {
        f"kube_job_info{{{of}}}": "1x30",
        f"kube_job_created{{{of}}}": f"{created}x30",
        f"kube_job_status_start_time{{{of}}}": f"{created}x30",
        f'kube_job_owner{{{of},owner_kind="{owner}",owner_name="{cron}",owner_is_controller="true"}}': "1x30",
    }
    for condition, holds in (("failed", failed), ("complete", complete)):
        if holds:
            series[f'kube_job_{condition}{{{of},condition="true"}}'] = "1x30"
            series[f'kube_job_{condition}{{{of},condition="false"}}'] = "0x30"
    return series


# Alert → what is counted each minute (in promtool's notation), the time at which it must be on, and a quiet likeness.
ALARMS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "HiragDown": (
        {f"hirag_service_serving{{{OURS}}}": "0x20"},
        "10m",
        {f"hirag_service_serving{{{OURS}}}": "1x20"},
    ),
    "HiragErrors": (
        {
            f'hirag_service_requests_total{{{OURS},code="OK"}}': "0+95x30",
            f'hirag_service_requests_total{{{OURS},code="INTERNAL"}}': "0+5x30",
        },
        "20m",
        {
            f'hirag_service_requests_total{{{OURS},code="OK"}}': "0+95x30",
            f'hirag_service_requests_total{{{OURS},code="UNAUTHENTICATED"}}': "0+5x30",
        },
    ),
    "HiragOverloaded": (
        {
            f'hirag_service_requests_total{{{OURS},code="OK"}}': "0+90x30",
            f'hirag_service_refused_total{{{OURS},reason="queue"}}': "0+10x30",
        },
        "20m",
        {
            f'hirag_service_requests_total{{{OURS},code="OK"}}': "0+90x30",
            f'hirag_service_refused_total{{{OURS},reason="quota"}}': "0+10x30",
        },
    ),
    "HiragSlow": (
        {
            f'hirag_service_request_seconds_bucket{{{OURS},method="Retrieve",le="1"}}': "0+90x30",
            f'hirag_service_request_seconds_bucket{{{OURS},method="Retrieve",le="2"}}': "0+100x30",
            f'hirag_service_request_seconds_bucket{{{OURS},method="Retrieve",le="+Inf"}}': "0+100x30",
        },
        "25m",
        {
            f'hirag_service_request_seconds_bucket{{{OURS},method="Retrieve",le="1"}}': "0+100x30",
            f'hirag_service_request_seconds_bucket{{{OURS},method="Retrieve",le="+Inf"}}': "0+100x30",
        },
    ),
    "HiragWorkersDie": (
        {f"hirag_service_worker_deaths_total{{{OURS}}}": "0 0 1 2 3 4x20"},
        "10m",
        {f"hirag_service_worker_deaths_total{{{OURS}}}": "0 0 1x20"},
    ),
    "HiragSwapFailed": (
        {f'hirag_snapshot_swaps_total{{{OURS},outcome="failed"}}': "0 0 1x20"},
        "10m",
        {f'hirag_snapshot_swaps_total{{{OURS},outcome="ok"}}': "0 0 1x20"},
    ),
    "HiragSnapshotsDiffer": (
        {
            f'hirag_snapshot_info{{{OURS},snapshot="s1"}}': "1x30",
            f'hirag_snapshot_info{{{OURS},snapshot="s2"}}': "1x30",
        },
        "20m",
        {f'hirag_snapshot_info{{{OURS},snapshot="s1"}}': "2x30"},
    ),
    "HiragSnapshotOld": (  # promtool's time begins at 0
        {f"hirag_snapshot_created_timestamp_seconds{{{OURS}}}": f"{-2 * DAY}x60"},
        "30m",
        {f"hirag_snapshot_created_timestamp_seconds{{{OURS}}}": f"{-DAY}x60"},
    ),
    "HiragCertificateEnds": (
        {f"hirag_service_certificate_expiry_timestamp_seconds{{{OURS}}}": f"{13 * DAY}x60"},
        "30m",
        {f"hirag_service_certificate_expiry_timestamp_seconds{{{OURS}}}": f"{15 * DAY}x60"},
    ),
    "HiragCallersFileFailed": (
        {f"hirag_service_callers_file_failed{{{OURS}}}": "0 1x30"},
        "10m",
        {f"hirag_service_callers_file_failed{{{OURS}}}": "0 1 0x30"},
    ),
    "HiragConnectionsClosed": (
        {f'hirag_service_connections_closed_total{{{OURS},reason="client"}}': "0+5x30"},
        "20m",
        {f'hirag_service_connections_closed_total{{{OURS},reason="idle"}}': "0+5x30"},
    ),
    "HiragTokenEnds": (
        {f"hirag_service_token_expiry_timestamp_seconds{{{OURS}}}": f"{13 * DAY}x60"},
        "30m",
        {f"hirag_service_token_expiry_timestamp_seconds{{{OURS}}}": f"{15 * DAY}x60"},
    ),
    "HiragPodsNotReady": (
        {f"kube_deployment_status_replicas_unavailable{{{DEPLOYED}}}": "1x60"},
        "40m",
        {f"kube_deployment_status_replicas_unavailable{{{DEPLOYED}}}": "1x20 0x40"},
    ),
    "HiragBuildFailed": (
        job("demo-hirag-dist-build-1", failed=True),
        "5m",
        job("demo-hirag-dist-build-1", failed=True, cron="other-build"),
    ),
    "HiragBuildLong": (
        job("demo-hirag-dist-build-1", created=-DAY),
        "10m",
        job("demo-hirag-dist-build-1", created=-DAY + 3600) | job("other-1", created=-DAY, cron="other-build"),
    ),
    "HiragBuildOverdue": (
        {f"kube_cronjob_created{{{CRON}}}": f"{-9 * DAY}x30", f"{SUCCESS}{{{CRON}}}": f"{-2 * DAY - 7200}x30"},
        "10m",
        {f"kube_cronjob_created{{{CRON}}}": f"{-9 * DAY}x30", f"{SUCCESS}{{{CRON}}}": f"{-2 * DAY}x30"},
    ),
}


def firing(
    folder: Path, rules: Object, series: dict[str, str], at: str, alert: str, expected: Sequence[Object] = ()
) -> bool:
    """Return whether promtool finds an alert in another state than expected."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": list(expected)}],
    }
    suite = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "suite.yaml").write_text(yaml.safe_dump(suite), encoding="utf-8")
    done = promtool(folder, "test", "rules", "suite.yaml")
    said = done.stdout + done.stderr
    assert done.returncode == 0 or f"alertname: {alert}" in said, said
    return done.returncode != 0


@pytest.mark.parametrize("alert", ALARMS)
def test_alarms(rules: Object, tmp_path: Path, alert: str) -> None:
    wrong, at, quiet = ALARMS[alert]
    assert firing(tmp_path, rules, wrong, at, alert)
    assert not firing(tmp_path, rules, quiet, at, alert)


def test_every_alert_is_tried_and_written_up(rules: Object) -> None:
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert alerts.keys() == ALARMS.keys()
    page = (ROOT / "docs/operations/alerts.md").read_text(encoding="utf-8")
    for name, rule in alerts.items():
        assert f"\n### {name}\n" in page
        assert rule["annotations"]["runbook_url"] == f"https://example.com/operations#{name.lower()}"


def test_no_pod_at_all_is_down_too(rules: Object, tmp_path: Path) -> None:
    assert firing(tmp_path, rules, {"up": "1x20"}, "10m", "HiragDown")


def test_few_questions_that_fail_call_nobody(rules: Object, tmp_path: Path) -> None:
    """One of ten at night is above one in a hundred, and no reason for an alert."""
    asked = f'hirag_service_requests_total{{{OURS},code="OK"}}'
    failed = f'hirag_service_requests_total{{{OURS},code="INTERNAL"}}'
    night = {asked: "0+2x40", failed: "0 0 0 0 0 1 1 1 1 1 2x5 2 3x20"}
    assert not firing(tmp_path, rules, night, "20m", "HiragErrors")
    all_of_them = {asked: "0x40", failed: "0+1x40"}
    assert firing(tmp_path, rules, all_of_them, "25m", "HiragErrors")


def test_the_release_alone_is_watched(chart: Chart) -> None:
    other = chart.render(merged(ALERTS, {"fullnameOverride": "other"}))
    for group in only(other, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            assert "demo" not in rule["expr"]
            ours = ('service="other-metrics"', '="other-build', 'deployment="other-query"')
            assert any(each in rule["expr"] for each in ours)
            assert rule["labels"].items() >= {"namespace": NAMESPACE, "release": "demo"}.items()
            assert all(f'namespace="{NAMESPACE}"' in selector for selector in re.findall(r"{([^}]*)}", rule["expr"]))


def told(folder: Path, rules: Object, series: dict[str, str], at: str, jobs: list[str]) -> bool:
    """Return whether HiragBuildFailed fires for exactly these Jobs, with the texts of the rule."""
    (rule,) = (each for group in rules["groups"] for each in group["rules"] if each["alert"] == "HiragBuildFailed")
    expected = [
        {
            "exp_labels": rule["labels"] | {"job_name": name},
            "exp_annotations": {
                key: said.replace("{{ $labels.job_name }}", name) for key, said in rule["annotations"].items()
            },
        }
        for name in jobs
    ]
    return not firing(folder, rules, series, at, "HiragBuildFailed", expected)


NIGHT = "demo-hirag-dist-build-29384120"
NEXT = "demo-hirag-dist-build-29385560"


@pytest.fixture(scope="module")
def once(chart: Chart) -> str:
    """The name of the Job that builds once."""
    return str(only(chart.render(ALERTS), "Job")["metadata"]["name"])


def test_a_first_pod_that_failed_is_no_failed_build(rules: Object, tmp_path: Path) -> None:
    pods = {f'kube_job_status_failed{{{IN},job_name="{NIGHT}",reason=""}}': "1x30"}
    assert told(tmp_path, rules, pods | job(NIGHT), "5m", [])  # the second is running
    assert told(tmp_path, rules, pods | job(NIGHT, complete=True), "5m", [])


def test_a_job_that_failed_without_a_failed_pod_is_told(rules: Object, tmp_path: Path) -> None:
    pods = {f'kube_job_status_failed{{{IN},job_name="{NIGHT}"}}': "0x30"}
    assert told(tmp_path, rules, pods | job(NIGHT, failed=True), "5m", [NIGHT])


def test_a_failed_build_is_told_once(rules: Object, tmp_path: Path) -> None:
    """Not of its submitter too, nor for each of two exporters, nor because of a concurrent build."""
    series = job(NIGHT, failed=True) | job(
        "demo-hirag-dist-run-0a1b2c3d", failed=True, owner="RayJob", cron="demo-hirag-dist-run-0a1b2c3d"
    )
    again = job(NIGHT, failed=True, more=',instance="second"')
    assert told(tmp_path, rules, series | again | job(NEXT, 600), "5m", [NIGHT])
    assert told(tmp_path, rules, series | job(NEXT, 600, failed=True), "5m", [NIGHT, NEXT])


def test_a_later_success_clears_what_failed(rules: Object, tmp_path: Path) -> None:
    series = job(NIGHT, 60, failed=True) | job(NEXT, 300, failed=True)
    assert told(tmp_path, rules, series | {f"{SUCCESS}{{{CRON}}}": "30x9 200x9 900x20"}, "5m", [NIGHT, NEXT])
    assert told(tmp_path, rules, series | {f"{SUCCESS}{{{CRON}}}": "30x9 200x9 900x20"}, "15m", [NEXT])
    assert told(tmp_path, rules, series | {f"{SUCCESS}{{{CRON}}}": "30x9 200x9 900x20"}, "25m", [])


def test_a_build_of_the_release_is_told_whatever_the_nights_did(rules: Object, once: str, tmp_path: Path) -> None:
    series = job(once, 60, failed=True, owner="", cron="")
    assert told(tmp_path, rules, series, "5m", [once])
    # A night found it at work, left itself out, and so succeeded: after it was made, and before it failed.
    night = {f"{SUCCESS}{{{CRON}}}": "120x30"} | job(NIGHT, 90, complete=True)
    assert told(tmp_path, rules, series | night, "5m", [once])
    assert told(tmp_path, rules, series | night | job(NEXT, 150, failed=True), "5m", [once, NEXT])
    before = job("demo-hirag-dist-build-0a1b2c3d", 60, failed=True, owner="", cron="")
    assert told(tmp_path, rules, before, "5m", [])  # what an earlier release built once went with it


def test_a_submitter_that_succeeded_says_nothing_of_the_build(rules: Object, tmp_path: Path) -> None:
    """It follows the log of a build that fails, and ends with 0 all the same."""
    run = 'job_name="demo-hirag-dist-run-0a1b2c3d"'
    done = {f"kube_job_status_completion_time{{{IN},{run}}}": "900x30"}
    submitter = job(
        "demo-hirag-dist-run-0a1b2c3d", 60, complete=True, owner="RayJob", cron="demo-hirag-dist-run-0a1b2c3d"
    )
    assert told(tmp_path, rules, job(NIGHT, 60, failed=True) | submitter | done, "5m", [NIGHT])


def test_a_build_of_the_release_clears_a_night(rules: Object, once: str, tmp_path: Path) -> None:
    done = {f'kube_job_status_completion_time{{{IN},job_name="{once}"}}': "900x30"}
    assert told(tmp_path, rules, job(NIGHT, 60, failed=True) | done, "5m", [])


@pytest.mark.parametrize("end", [{"failed": True}, {"complete": True}])
def test_a_build_that_ended_is_not_long(rules: Object, tmp_path: Path, end: dict[str, bool]) -> None:
    assert not firing(tmp_path, rules, job(NIGHT, -9 * DAY, **end), "10m", "HiragBuildLong")
    assert firing(tmp_path, rules, job(NIGHT, -9 * DAY, **end) | job(NEXT, -2 * DAY), "10m", "HiragBuildLong")


def test_a_first_build_that_hangs_is_long(rules: Object, once: str, tmp_path: Path) -> None:
    assert firing(tmp_path, rules, job(once, -2 * DAY, owner="", cron=""), "10m", "HiragBuildLong")


def test_a_schedule_that_never_succeeded_is_overdue(rules: Object, tmp_path: Path) -> None:
    created = f"kube_cronjob_created{{{CRON}}}"
    assert firing(tmp_path, rules, {created: f"{-3 * DAY}x30"}, "10m", "HiragBuildOverdue")
    assert not firing(tmp_path, rules, {created: f"{-DAY}x30"}, "10m", "HiragBuildOverdue")


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"monitoring": {"prometheusRule": {"buildHours": None}}}, {"HiragBuildLong"}),
        ({"monitoring": {"prometheusRule": {"overdueHours": None}}}, {"HiragBuildOverdue"}),
        ({"build": {"schedule": {"suspend": True}}}, {"HiragBuildOverdue"}),
        ({"build": {"schedule": {"enabled": False}}}, {"HiragBuildOverdue"}),
        ({"build": {"once": False}}, set()),
        (
            {"monitoring": {"prometheusRule": {"kubeStateMetrics": False}}},
            {"HiragPodsNotReady", "HiragBuildFailed", "HiragBuildLong", "HiragBuildOverdue"},
        ),
    ],
)
def test_alerts_of_builds_come_with_what_they_watch(
    chart: Chart, tmp_path: Path, values: dict[str, Any], gone: set[str]
) -> None:
    found = only(chart.render(merged(ALERTS, values)), "PrometheusRule")["spec"]
    assert {rule["alert"] for group in found["groups"] for rule in group["rules"]} == ALARMS.keys() - gone
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(found), encoding="utf-8")
    assert promtool(tmp_path, "check", "rules", "rules.yaml").returncode == 0


@pytest.mark.parametrize("builds", [{"once": True}, {"once": False}])
def test_a_release_that_only_builds_has_its_alerts(chart: Chart, tmp_path: Path, builds: dict[str, Any]) -> None:
    values = merged(ALERTS, {"query": {"enabled": False}, "build": builds})
    rule = only(chart.render(values), "PrometheusRule")
    assert rule["metadata"]["labels"]["app.kubernetes.io/component"] == "build"
    found = rule["spec"]
    alerts = {each["alert"] for group in found["groups"] for each in group["rules"]}
    assert alerts == {"HiragBuildFailed", "HiragBuildLong", "HiragBuildOverdue"}
    assert told(tmp_path, found, job(NIGHT, failed=True), "5m", [NIGHT])


def test_no_rules_where_there_is_nothing_to_watch(chart: Chart) -> None:
    for more in ({"monitoring": {"prometheusRule": {"kubeStateMetrics": False}}}, {"build": {"once": False}}):
        values = merged(ALERTS, {"query": {"enabled": False}, "build": {"schedule": {"enabled": False}}})
        objects = chart.render(merged(values, more))
        assert not [each for each in objects if each["kind"] == "PrometheusRule"]


def test_two_dashboards_are_two(chart: Chart) -> None:
    """Grafana takes neither of two dashboards of one uid."""
    uids = [
        json.loads(only(chart.render(merged(ALERTS, more)), "ConfigMap", "-dashboard")["data"]["hirag-dist.json"])[
            "uid"
        ]
        for more in ({}, {"fullnameOverride": "other"})
    ]
    assert len(set(uids)) == 2
