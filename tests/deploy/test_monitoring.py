"""Alerts fire where they should, and are written up; rules and dashboard ask for what the service exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from hirag_dist.service.metrics import FACTS, Metrics, WorkerMetrics
from tests.deploy.charts import NAMESPACE, ROOT, SOURCE, Chart, Object, merged, only
from tests.deploy.promtool import ALERTS, CRON, DAY, SUCCESS, firing, job, promtool

DEPLOYED = f'namespace="{NAMESPACE}",deployment="demo-hirag-dist-query"'

OURS = f'namespace="{NAMESPACE}",service="demo-hirag-dist-metrics",pod="a"'

# Alert → what is counted each minute (in promtool's notation), the time at which it must be on, and a quiet likeness.
ALARMS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "HiragDown": ({f"hirag_service_serving{{{OURS}}}": "0x20"}, "10m", {f"hirag_service_serving{{{OURS}}}": "1x20"}),
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
        {
            f'hirag_snapshot_info{{{OURS},snapshot="s1"}}': "0x30",
            f'hirag_snapshot_info{{{OURS},snapshot="s2"}}': "2x30",
        },
    ),
    "HiragSnapshotOld": (  # promtool's time begins at 0
        {f"hirag_snapshot_created_timestamp_seconds{{{OURS}}}": f"{-2 * DAY}x60"},
        "30m",
        {f"hirag_snapshot_created_timestamp_seconds{{{OURS}}}": f"{-DAY}x60"},
    ),
    "HiragCallersFileFailed": (
        {f"hirag_service_callers_file_failed{{{OURS}}}": "0 1x30"},
        "10m",
        {f"hirag_service_callers_file_failed{{{OURS}}}": "0 1 0x30"},
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


def test_the_release_alone_is_watched(chart: Chart) -> None:
    other = chart.render(merged(ALERTS, {"fullnameOverride": "other"}))
    for group in only(other, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            assert "demo" not in rule["expr"]
            ours = ('service="other-metrics"', '="other-build', 'deployment="other-query"')
            assert any(each in rule["expr"] for each in ours)
            assert rule["labels"].items() >= {"namespace": NAMESPACE, "release": "demo"}.items()
            assert all(f'namespace="{NAMESPACE}"' in selector for selector in re.findall(r"{([^}]*)}", rule["expr"]))


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"monitoring": {"prometheusRule": {"buildHours": None}}}, {"HiragBuildLong"}),
        ({"build": {"schedule": {"enabled": False}}}, {"HiragBuildOverdue"}),
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


def exported(folder: Path) -> set[str]:
    """Return the names of all samples of a service."""
    registry = CollectorRegistry()
    Metrics(registry).describe("s", dict.fromkeys(FACTS, 1.0))
    families = [*registry.collect(), *WorkerMetrics(folder, 1).registry.collect()]
    names = set()
    for family in families:
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def dashboard() -> dict[str, Any]:
    return json.loads((SOURCE / "files/dashboard.json").read_text(encoding="utf-8"))


def drawn() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]


def test_alerts_and_panels_ask_for_what_there_is(rules: Object, tmp_path: Path) -> None:
    there = exported(tmp_path)
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for expression in [*asked, *drawn()]:
        assert set(_NAME.findall(expression)) <= there | OF_KUBERNETES, expression


def test_rules_and_dashboard_without_kubernetes(tmp_path: Path) -> None:
    folder = ROOT / "deploy/monitoring"
    (own,) = yaml.safe_load((folder / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    of_chart = re.findall(r'"name" "(Hirag\w+)"', (SOURCE / "templates/_rules.tpl").read_text(encoding="utf-8"))
    assert [rule["alert"] for rule in own["rules"]] == of_chart[: of_chart.index("HiragPodsNotReady")]
    text = (folder / "dashboard.json").read_text(encoding="utf-8")
    made = json.loads(text)
    asked = [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]
    assert len(asked) == len(drawn())
    for expression in [*asked, *(rule["expr"] for rule in own["rules"])]:
        assert set(_NAME.findall(expression)) <= exported(tmp_path), expression
        assert re.search(r"job=~?", expression), expression
        assert not re.search(r"namespace|pod\b|%[sv]|THESE", expression), expression
    assert [each["name"] for each in made["templating"]["list"]] == ["source", "job"]


def test_every_metric_is_on_the_dashboard(tmp_path: Path) -> None:
    shown = {name for expression in drawn() for name in _NAME.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported(tmp_path)}
    assert families == {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}


def test_panels_parse(tmp_path: Path) -> None:
    filled = [
        each.replace("$__rate_interval", "5m").replace("$namespace", "n").replace("$service", ".+") for each in drawn()
    ]
    group = {"name": "panels", "rules": [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(filled)]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
    done = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(filled)} rules found" in done.stdout
