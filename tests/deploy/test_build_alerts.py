"""Alerts of builds: each failed build fires one, until another succeeds."""

from __future__ import annotations

from pathlib import Path

from tests.deploy.charts import Object
from tests.deploy.promtool import CRON, SUCCESS, firing, job


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
