"""Rules and dashboard parse, and ask for what the service exports."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from hirag_dist.service.metrics import FACTS, Metrics, WorkerMetrics
from tests.deploy.charts import ROOT, SOURCE, Object
from tests.deploy.promtool import promtool

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
