"""Alert rules of the query service for a Prometheus outside Kubernetes, from the chart's rules and default values.

`tools/chart.py` writes them, and the dashboard, into deploy/monitoring. They choose a service by its label `job`, and
leave out alerts on pods and Jobs.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from tools.docs.metrics_reference import ALERT, ROOT, RULES

_PRINTF = re.compile(r'"expr" \(printf "((?:[^"\\]|\\.)*)"((?: [^\s)]+)*)\)')
_JOB = 'job="hirag-dist"'
_AGE_HOURS = 48  # the chart has no default age of a snapshot


def rules() -> str:
    """Return the rules as a file that Prometheus reads."""
    values: dict[str, Any] = yaml.safe_load((ROOT / "deploy/helm/hirag-dist/values.yaml").read_text(encoding="utf-8"))
    arguments = {"$these": _JOB, ".": _AGE_HOURS}
    arguments |= {f"$rules.{name}": value for name, value in values["monitoring"]["prometheusRule"].items()}
    text = RULES.read_text(encoding="utf-8")
    failed = re.search(r'\$failed := printf "((?:[^"\\]|\\.)*)"', text)
    assert failed is not None
    arguments["$failed"] = _filled(failed[1], [_JOB])
    made = []
    for alert in ALERT.finditer(text):
        expression = _PRINTF.search(alert[0])
        if expression is None or "kube_" in expression[1]:
            continue
        made.append(
            {
                "alert": alert["name"],
                "expr": _filled(expression[1], [arguments[name] for name in expression[2].split()]),
                "for": alert["hold"],
                "labels": {"severity": alert["severity"]},
                "annotations": {name: _unquoted(alert[name]) for name in ("summary", "description")},
            }
        )
    return yaml.safe_dump({"groups": [{"name": "hirag-dist", "rules": made}]}, sort_keys=False, width=1000)


def _filled(pattern: str, arguments: list[Any]) -> str:
    """Return the text that `printf` of a template makes with verbs %s and %v."""
    return _unquoted(pattern).replace("%v", "%s") % tuple(arguments)


def _unquoted(text: str) -> str:
    return text.replace('\\"', '"')
