"""The chart's alerts evaluated by promtool, and series of kube-state-metrics to evaluate them on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from tests.deploy.charts import NAMESPACE, RAY, Object, Values, tool

RULE = {"enabled": True, "snapshotAgeHours": 48, "runbookUrl": "https://example.com/operations"}
ALERTS: Values = RAY | {"build.schedule.enabled": True, "monitoring.prometheusRule": RULE}


DAY = 86_400
IN = f'namespace="{NAMESPACE}"'


def promtool(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [tool("promtool"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def job(name: str, created: int = 1, *, failed: bool = False, cron: str = "demo-hirag-dist-build") -> dict[str, str]:
    """Return the series of kube-state-metrics for a Job, for half an hour.

    Args:
        created: seconds; promtool's time begins at 0.
        failed: its condition; one that has not failed is running.
        cron: the name of its owner.
    """
    of = f'{IN},job_name="{name}"'
    series = {
        f"kube_job_info{{{of}}}": "1x30",
        f"kube_job_created{{{of}}}": f"{created}x30",
        f"kube_job_status_start_time{{{of}}}": f"{created}x30",
        f'kube_job_owner{{{of},owner_kind="CronJob",owner_name="{cron}",owner_is_controller="true"}}': "1x30",
    }
    if failed:
        series[f'kube_job_failed{{{of},condition="true"}}'] = "1x30"
        series[f'kube_job_failed{{{of},condition="false"}}'] = "0x30"
    return series


def firing(folder: Path, rules: Object, series: dict[str, str], at: str, alert: str) -> bool:
    """Return whether promtool finds that an alert is on."""
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
