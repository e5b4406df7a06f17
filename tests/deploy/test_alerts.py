"""Alerts: each fires where it should and is quiet where it should be, and is written up."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.charts import NAMESPACE, ROOT, Chart, Object, merged, only
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
