"""Reference of metrics and alerts, read from the service's registry and the chart's alert rules."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from hirag_dist.service.catalogue import CatalogueLimits, IndexCatalogue
from hirag_dist.service.engine import EngineRunner
from hirag_dist.service.metrics import FACTS, CatalogueMetrics, Metrics, WorkerMetrics
from hirag_dist.service.metrics_server import WatchMetrics
from tools.docs.markdown import NOTICE, cell, table

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "helm" / "hirag-dist" / "templates" / "_rules.tpl"
ALERT = re.compile(
    r'"name" "(?P<name>Hirag\w+)" "severity" "(?P<severity>\w+)" "for" "(?P<hold>\w+)".*?'
    r'"summary" "(?P<summary>(?:[^"\\]|\\.)*)"\s+"description" "(?P<description>(?:[^"\\]|\\.)*)"',
    re.DOTALL,
)
_HEAD = """# Metrics and alerts

`service.metrics_listen` serves `/metrics` for all processes of a service, and `/ready` (200 while any process accepts
questions, else 503). No label holds a caller's name or a question.

## Metrics

"""
_WATCH = """
## Metrics of `watch`

`hirag-dist watch --metrics HOST:PORT` serves these on `/metrics`.

"""
_ALERTS = """
## Alerts

The Helm chart installs these rules with `monitoring.prometheusRule.enabled`. Without Kubernetes, give those of the
service to Prometheus as `deploy/monitoring/rules.yaml`, scrape the service under the job `hirag-dist`, and import
`deploy/monitoring/dashboard.json` into Grafana. The last column links to what to do.

"""


def page() -> str:
    """Return the page `reference/metrics.md`."""
    columns = ("metric", "type", "labels", "meaning")
    watch = [_row(family, {}) for family in WatchMetrics().registry.collect()]
    return NOTICE + _HEAD + table(columns, _metrics()) + _WATCH + table(columns, watch) + _ALERTS + _alerts()


def _metrics() -> list[tuple[str, str, str, str]]:
    """Return a row for each metric: those of a process, and those of the supervisor with every fact known."""
    registry = CollectorRegistry()
    counted = Metrics(registry)
    many = CatalogueMetrics(_no_indexes(), registry)
    every = [*vars(counted).values(), *vars(many).values()]
    labels = {metric._name: metric._labelnames for metric in every if hasattr(metric, "_labelnames")}
    counted.describe("id", dict.fromkeys(FACTS, 0))
    with tempfile.TemporaryDirectory() as folder:
        families = [*registry.collect(), *WorkerMetrics(Path(folder), 1).registry.collect()]
    return [_row(family, labels) for family in families]


def _no_indexes() -> IndexCatalogue:
    """Return a catalogue without an index."""

    def none(*_: object) -> NoReturn:
        raise NotImplementedError

    return IndexCatalogue(dict, none, CatalogueLimits(), EngineRunner())


def _row(family: Metric, labels: Mapping[str, Sequence[str]]) -> tuple[str, str, str, str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    names = labels.get(family.name) or getattr(family, "_labelnames", None) or ()
    return f"`{name}`", family.type, ", ".join(f"`{label}`" for label in names), cell(family.documentation)


def _alerts() -> str:
    rows = []
    for found in ALERT.finditer(RULES.read_text(encoding="utf-8")):
        name = found["name"]
        about = re.sub(r"\{\{.*?\}\}", "…", found["description"].replace('\\"', '"'))
        where = f"[what to do](../operations/alerts.md#{name.lower()})"
        rows.append((f"`{name}`", found["severity"], found["hold"], cell(f"{found['summary']}. {about}"), where))
    return table(("alert", "severity", "holds for", "meaning", ""), rows)
