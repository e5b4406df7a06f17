"""Alerts and the dashboard: they ask for what the service exports, parse, and alarms go off when they should."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from hirag_dist.service.metrics import Facts, FactsCollector, Metrics, WorkerMetrics
from tests.deploy.charts import NAMESPACE, ROOT, SOURCE, Chart, Object, merged, only, tool

ALERTS = {
    "build": {"once": True, "schedule": {"enabled": True}, "inputs": ["s3://bucket/docs"]},
    "monitoring": {
        "prometheusRule": {
            "enabled": True,
            "snapshotAgeHours": 48,
            "buildAgeHours": 36,
            "runbookUrl": "https://example.com/operations",
        },
        "dashboard": {"enabled": True},
    },
}
OF_KUBERNETES = {  # kube-state-metrics' names
    "kube_job_failed",
    "kube_job_created",
    "kube_job_status_completion_time",
    "kube_cronjob_created",
    "kube_cronjob_status_last_successful_time",
    "kube_deployment_status_replicas_unavailable",
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
    Facts("s", 1.0, 1.0, 1.0, 1.0, 1).write(folder, 0)
    registry.register(FactsCollector(folder))
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
    """What an expression groups or filters by is a label of ours, or one that Prometheus puts on."""
    put_on = {"namespace", "service", "pod", "job_name", "cronjob", "deployment", "condition", "le"}
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


CRON = f'namespace="{NAMESPACE}",cronjob="demo-hirag-dist-build"'
DEPLOYED = f'namespace="{NAMESPACE}",deployment="demo-hirag-dist-query"'


def jobs(
    number: int = 1,
    *,
    created: int,
    failed: int | None = None,
    done: int | None = None,
    stem: str = "demo-hirag-dist-build",
) -> dict[str, str]:
    """Return what kube-state-metrics says of a Job."""
    named = f'namespace="{NAMESPACE}",job_name="{stem}-{number}"'
    said = {f"kube_job_created{{{named}}}": f"{created}x20"}
    if failed is not None:
        said[f'kube_job_failed{{{named},condition="true"}}'] = f"{failed}x20"
    if done is not None:
        said[f"kube_job_status_completion_time{{{named}}}"] = f"{done}x20"
    return said


OURS = f'namespace="{NAMESPACE}",service="demo-hirag-dist-metrics",pod="a"'
DAY = 86_400

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
        jobs(created=100, failed=1) | jobs(2, created=50, done=60),
        "5m",
        jobs(created=100, failed=1) | jobs(2, created=200, done=260),
    ),
    "HiragBuildLate": (
        {f"kube_cronjob_status_last_successful_time{{{CRON}}}": f"{-DAY * 3 // 2}x60"},
        "30m",
        {f"kube_cronjob_status_last_successful_time{{{CRON}}}": f"{-DAY}x60"},
    ),
}

QUIET: dict[str, tuple[str, dict[str, str]]] = {
    "a build that has not failed yet": ("HiragBuildFailed", jobs(created=100, failed=0)),
    "a build that another pod is trying again": (
        "HiragBuildFailed",
        {f'kube_job_status_failed{{namespace="{NAMESPACE}",job_name="demo-hirag-dist-build-1"}}': "1x20"},
    ),
    "the Job that submits to Ray": ("HiragBuildFailed", jobs(created=100, failed=1, stem="demo-hirag-dist-run")),
    "another release": ("HiragBuildFailed", jobs(created=100, failed=1, stem="other-build")),
    "the schedule's success, its Job gone": (
        "HiragBuildFailed",
        jobs(created=100, failed=1) | {f"kube_cronjob_status_last_successful_time{{{CRON}}}": "200x20"},
    ),
    "a schedule that is young": ("HiragBuildLate", {f"kube_cronjob_created{{{CRON}}}": f"{-DAY}x60"}),
}


def firing(folder: Path, rules: Object, series: dict[str, str], at: str, alert: str) -> bool:
    """Whether an alert is on, by promtool's own reckoning."""
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules), encoding="utf-8")
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": alert, "exp_alerts": []}],
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


@pytest.mark.parametrize("case", QUIET)
def test_what_is_no_alarm(rules: Object, tmp_path: Path, case: str) -> None:
    alert, series = QUIET[case]
    assert not firing(tmp_path, rules, series, "20m", alert)


def test_every_alert_is_tried_and_written_up(rules: Object) -> None:
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert alerts.keys() == ALARMS.keys()
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    for name, rule in alerts.items():
        assert f"\n### {name}\n" in page
        assert rule["annotations"]["runbook_url"] == f"https://example.com/operations#{name.lower()}"


def test_no_pod_at_all_is_down_too(rules: Object, tmp_path: Path) -> None:
    assert firing(tmp_path, rules, {"up": "1x20"}, "10m", "HiragDown")


def test_the_release_alone_is_watched(chart: Chart) -> None:
    other = chart.render(merged(ALERTS, {"fullnameOverride": "other"}))
    for group in only(other, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            ours = ('service="other-metrics"', 'job_name=~"other-build-.+"', 'cronjob="other-build"', '"other-query"')
            assert any(each in rule["expr"] for each in ours)
            assert rule["labels"].items() >= {"namespace": NAMESPACE, "release": "demo"}.items()


def test_two_dashboards_are_two(chart: Chart) -> None:
    """Grafana takes neither of two dashboards of one uid."""
    uids = [
        json.loads(only(chart.render(merged(ALERTS, more)), "ConfigMap", "-dashboard")["data"]["hirag-dist.json"])[
            "uid"
        ]
        for more in ({}, {"fullnameOverride": "other"})
    ]
    assert len(set(uids)) == 2
