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
from tests.deploy.promtool import ALERTS, DAY, IN, firing, job, promtool

UNAVAILABLE = f'kube_deployment_status_replicas_unavailable{{{IN},deployment="demo-hirag-dist-query"}}'
CREATED, SUCCEEDED = (
    f'kube_cronjob_{of}{{{IN},cronjob="demo-hirag-dist-build"}}' for of in ("created", "status_last_successful_time")
)


def ours(metric: str, **labels: str) -> str:
    """Return a series of a pod of the release."""
    chosen = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f'hirag_{metric}{{{IN},service="demo-hirag-dist-metrics",pod="a"{chosen}}}'


def requests(**counts: str) -> dict[str, str]:
    return {ours("service_requests_total", code=code): count for code, count in counts.items()}


def lasting(**counts: str) -> dict[str, str]:
    """Return how many requests lasted at most 1 s, 2 s, and any time."""
    bounds = {"one": "1", "two": "2", "any": "+Inf"}
    return {
        ours("service_request_seconds_bucket", method="Retrieve", le=bounds[bound]): count
        for bound, count in counts.items()
    }


# Alert → what is counted each minute (in promtool's notation), the time at which it must be on, and a quiet likeness.
ALARMS: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "HiragDown": ({ours("service_serving"): "0x20"}, "10m", {ours("service_serving"): "1x20"}),
    "HiragErrors": (
        requests(OK="0+95x30", INTERNAL="0+5x30"),
        "20m",
        requests(OK="0+95x30", UNAUTHENTICATED="0+5x30"),
    ),
    "HiragOverloaded": (
        requests(OK="0+90x30") | {ours("service_refused_total", reason="queue"): "0+10x30"},
        "20m",
        requests(OK="0+90x30") | {ours("service_refused_total", reason="quota"): "0+10x30"},
    ),
    "HiragSlow": (
        lasting(one="0+90x30", two="0+100x30", any="0+100x30"),
        "25m",
        lasting(one="0+100x30", any="0+100x30"),
    ),
    "HiragWorkersDie": (
        {ours("service_worker_deaths_total"): "0 0 1 2 3 4x20"},
        "10m",
        {ours("service_worker_deaths_total"): "0 0 1x20"},
    ),
    "HiragSwapFailed": (
        {ours("snapshot_swaps_total", outcome="failed"): "0 0 1x20"},
        "10m",
        {ours("snapshot_swaps_total", outcome="ok"): "0 0 1x20"},
    ),
    "HiragSnapshotsDiffer": (
        {ours("snapshot_info", snapshot="s1"): "1x30", ours("snapshot_info", snapshot="s2"): "1x30"},
        "20m",
        {ours("snapshot_info", snapshot="s1"): "0x30", ours("snapshot_info", snapshot="s2"): "2x30"},
    ),
    "HiragSnapshotOld": (  # promtool's time begins at 0
        {ours("snapshot_created_timestamp_seconds"): f"{-2 * DAY}x60"},
        "30m",
        {ours("snapshot_created_timestamp_seconds"): f"{-DAY}x60"},
    ),
    "HiragCallersFileFailed": (
        {ours("service_callers_file_failed"): "0 1x30"},
        "10m",
        {ours("service_callers_file_failed"): "0 1 0x30"},
    ),
    "HiragTokenEnds": (
        {ours("service_token_expiry_timestamp_seconds"): f"{13 * DAY}x60"},
        "30m",
        {ours("service_token_expiry_timestamp_seconds"): f"{15 * DAY}x60"},
    ),
    "HiragPodsNotReady": ({UNAVAILABLE: "1x60"}, "40m", {UNAVAILABLE: "1x20 0x40"}),
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
        {CREATED: f"{-9 * DAY}x30", SUCCEEDED: f"{-2 * DAY - 7200}x30"},
        "10m",
        {CREATED: f"{-9 * DAY}x30", SUCCEEDED: f"{-2 * DAY}x30"},
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
    names = ('service="other-metrics"', '="other-build', 'deployment="other-query"')
    for group in only(other, "PrometheusRule")["spec"]["groups"]:
        for rule in group["rules"]:
            assert "demo" not in rule["expr"]
            assert any(each in rule["expr"] for each in names)
            assert rule["labels"].items() >= {"namespace": NAMESPACE, "release": "demo"}.items()
            assert all(IN in selector for selector in re.findall(r"{([^}]*)}", rule["expr"]))


@pytest.mark.parametrize(
    ("values", "gone"),
    [
        ({"monitoring.prometheusRule.buildHours": None}, {"HiragBuildLong"}),
        ({"build.schedule.enabled": False}, {"HiragBuildOverdue"}),
        (
            {"monitoring.prometheusRule.kubeStateMetrics": False},
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


@pytest.fixture
def exported(tmp_path: Path) -> set[str]:
    """The names of all samples of a service."""
    registry = CollectorRegistry()
    Metrics(registry).describe("s", dict.fromkeys(FACTS, 1.0))
    names = set()
    for family in (*registry.collect(), *WorkerMetrics(tmp_path, 1).registry.collect()):
        suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(family.type, ("",))
        names |= {family.name + suffix for suffix in suffixes}
    return names


def drawn(dashboard: Path = SOURCE / "files/dashboard.json") -> list[str]:
    """Return what the panels of a dashboard ask for."""
    panels = json.loads(dashboard.read_text(encoding="utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def test_alerts_and_panels_ask_for_what_there_is(rules: Object, exported: set[str]) -> None:
    asked = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    for expression in [*asked, *drawn()]:
        assert set(_NAME.findall(expression)) <= exported | OF_KUBERNETES, expression


def test_rules_and_dashboard_without_kubernetes(exported: set[str]) -> None:
    folder = ROOT / "deploy/monitoring"
    (own,) = yaml.safe_load((folder / "rules.yaml").read_text(encoding="utf-8"))["groups"]
    of_chart = re.findall(r'"name" "(Hirag\w+)"', (SOURCE / "templates/_rules.tpl").read_text(encoding="utf-8"))
    assert [rule["alert"] for rule in own["rules"]] == of_chart[: of_chart.index("HiragPodsNotReady")]
    asked = drawn(folder / "dashboard.json")
    assert len(asked) == len(drawn())
    for expression in [*asked, *(rule["expr"] for rule in own["rules"])]:
        assert set(_NAME.findall(expression)) <= exported, expression
        assert re.search(r"job=~?", expression), expression
        assert not re.search(r"namespace|pod\b|%[sv]|THESE", expression), expression
    variables = json.loads((folder / "dashboard.json").read_text(encoding="utf-8"))["templating"]["list"]
    assert [each["name"] for each in variables] == ["source", "job"]


def test_every_metric_is_on_the_dashboard(exported: set[str]) -> None:
    shown = {name for expression in drawn() for name in _NAME.findall(expression)}
    families, panels = ({re.sub(r"_(bucket|sum|count)$", "", name) for name in names} for names in (exported, shown))
    assert families == panels


def test_panels_parse(tmp_path: Path) -> None:
    variables = {"$__rate_interval": "5m", "$namespace": "n", "$service": ".+"}
    filled = [re.sub(r"\$\w+", lambda found: variables[found[0]], each) for each in drawn()]
    group = {"name": "panels", "rules": [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(filled)]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [group]}), encoding="utf-8")
    done = promtool(tmp_path, "check", "rules", "rules.yaml")
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(filled)} rules found" in done.stdout
