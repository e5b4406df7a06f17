"""The Grafana dashboard of the query service, row by row. `tools/chart.py` writes it into the chart.

Without Kubernetes a service is a job of Prometheus, and a process that is scraped an instance instead of a pod.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

_WIDTH, _HEIGHT = 8, 8
_SOURCE = {"type": "prometheus", "uid": "${source}"}
_THESE = 'namespace="$namespace",service=~"$service"'
_JOB = 'job=~"$job"'


@dataclass(frozen=True)
class Panel:
    """One picture.

    Attributes:
        title: what it answers.
        queries: PromQL → legend; THESE stands for the labels that choose a release.
        unit: Grafana's name of it.
        kind: timeseries or stat.
        note: what to make of it.
    """

    title: str
    queries: dict[str, str]
    unit: str = "short"
    kind: str = "timeseries"
    note: str = ""
    stacked: bool = field(default=False)


def _quantiles(metric: str, more: str = "") -> dict[str, str]:
    rate = f"sum by (le) (rate({metric}_bucket{{THESE{more}}}[$__rate_interval]))"
    return {f"histogram_quantile({share}, {rate})": f"p{share * 100:g}" for share in (0.5, 0.95, 0.99)}


ROWS: dict[str, list[Panel]] = {
    "Questions": [
        Panel(
            "Requests a second, by outcome",
            {"sum by (code) (rate(hirag_service_requests_total{THESE}[$__rate_interval]))": "{{code}}"},
            "reqps",
            stacked=True,
        ),
        Panel("How long Retrieve takes", _quantiles("hirag_service_request_seconds", ',method="Retrieve"'), "s"),
        Panel("Until an answer's first words", _quantiles("hirag_answer_first_text_seconds"), "s"),
    ],
    "Load": [
        Panel(
            "Requests turned away, by reason",
            {"sum by (reason) (rate(hirag_service_refused_total{THESE}[$__rate_interval]))": "{{reason}}"},
            "reqps",
            note="queue, deadline, full and answers are for load: more pods. rate, quota and concurrent are a caller's "
            "own limits.",
            stacked=True,
        ),
        Panel("Wait in line", _quantiles("hirag_service_queue_seconds"), "s"),
        Panel(
            "Requests in the pods",
            {"sum by (state) (hirag_service_requests_in_flight{THESE})": "{{state}}"},
            stacked=True,
        ),
        Panel(
            "Expected wait of a retrieval, by pod",
            {"max by (pod) (hirag_service_expected_wait_seconds{THESE})": "{{pod}}"},
            "s",
        ),
        Panel(
            "Callers, by how they are known",
            {"sum by (caller) (rate(hirag_service_requests_total{THESE}[$__rate_interval]))": "{{caller}}"},
            "reqps",
        ),
        Panel("Callers in the callers file", {"min(hirag_service_callers{THESE})": "callers"}, kind="stat"),
        Panel(
            "Callers file missing, empty or wrong",
            {"max(hirag_service_callers_file_failed{THESE})": "failed"},
            kind="stat",
        ),
    ],
    "Where a retrieval's time goes": [
        Panel(
            "Mean time of each part",
            {
                'sum by (part) (rate(hirag_retrieval_part_seconds_sum{THESE,part!="total"}[$__rate_interval])) / '
                'sum by (part) (rate(hirag_retrieval_part_seconds_count{THESE,part!="total"}[$__rate_interval]))': (
                    "{{part}}"
                )
            },
            "s",
            stacked=True,
        ),
        Panel(
            "Levels that a deadline cut off",
            {"sum by (level) (rate(hirag_retrieval_partial_total{THESE}[$__rate_interval]))": "{{level}}"},
            "ops",
        ),
        Panel(
            "Questions whose vector was remembered",
            {
                'sum(rate(hirag_question_cache_total{THESE,result="hit"}[$__rate_interval])) / '
                "sum(rate(hirag_question_cache_total{THESE}[$__rate_interval]))": "share"
            },
            "percentunit",
        ),
        Panel(
            "Tokens of answers a second",
            {"sum by (kind) (rate(hirag_answer_tokens_total{THESE}[$__rate_interval]))": "{{kind}}"},
            note="What the model that answers is paid for.",
        ),
    ],
    "Snapshots and processes": [
        Panel("Processes that serve", {"sum by (pod) (hirag_service_serving{THESE})": "{{pod}}"}, stacked=True),
        Panel(
            "Processes by snapshot",
            {"sum by (snapshot) (hirag_snapshot_info{THESE} > 0)": "{{snapshot}}"},
            stacked=True,
        ),
        Panel(
            "Age of what is served",
            {"time() - min(hirag_snapshot_created_timestamp_seconds{THESE})": "since it was published"},
            "s",
            "stat",
        ),
        Panel(
            "Snapshots taken up",
            {
                "sum by (outcome) (increase(hirag_snapshot_swaps_total{THESE}[$__rate_interval]))": "{{outcome}}",
            },
        ),
        Panel(
            "Since a process last took one up",
            {"time() - max by (pod) (hirag_snapshot_loaded_timestamp_seconds{THESE})": "{{pod}}"},
            "s",
        ),
        Panel(
            "Processes that died",
            {"sum by (pod) (increase(hirag_service_worker_deaths_total{THESE}[$__rate_interval]))": "{{pod}}"},
        ),
        Panel("Processes configured", {"sum(hirag_service_workers{THESE})": "processes"}, kind="stat"),
        Panel(
            "The next token is good for",
            {"min(hirag_service_token_expiry_timestamp_seconds{THESE}) - time()": "token"},
            "s",
            "stat",
        ),
    ],
}


def dashboard(kubernetes: bool = True) -> dict[str, Any]:
    """Return it as Grafana reads it."""
    variables = [
        _variable("namespace", "label_values(hirag_snapshot_info, namespace)", several=False),
        _variable("service", 'label_values(hirag_snapshot_info{namespace="$namespace"}, service)', several=True),
    ]
    if not kubernetes:
        variables = [_variable("job", "label_values(hirag_snapshot_info, job)", several=True)]
    panels: list[dict[str, Any]] = []
    top = 0
    for title, row in ROWS.items():
        place = {"x": 0, "y": top, "w": 24, "h": 1}
        panels.append({"type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []})
        for number, panel in enumerate(row):
            x, y = number % 3 * _WIDTH, top + 1 + number // 3 * _HEIGHT
            panels.append(_panel(panel, {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT}, kubernetes))
        top += 1 + -(-len(row) // 3) * _HEIGHT
    return {
        "uid": "hirag-dist-query",
        "title": "hirag-dist: questions",
        "tags": ["hirag-dist"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"},
                *variables,
            ]
        },
        "panels": [panel | {"id": number} for number, panel in enumerate(panels, 1)],
    }


def _panel(panel: Panel, place: dict[str, int], kubernetes: bool) -> dict[str, Any]:
    def named(text: str) -> str:
        return text if kubernetes else text.replace("by (pod)", "by (instance)").replace("{{pod}}", "{{instance}}")

    drawn: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        drawn["custom"] = {
            "lineWidth": 1,
            "fillOpacity": 20 if panel.stacked else 0,
            "stacking": {"mode": "normal" if panel.stacked else "none"},
        }
    targets = [
        {
            "datasource": _SOURCE,
            "refId": chr(ord("A") + number),
            "expr": named(query.replace("THESE", _THESE if kubernetes else _JOB)),
            "legendFormat": named(legend),
        }
        for number, (query, legend) in enumerate(panel.queries.items())
    ]
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.note,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": drawn, "overrides": []},
        "targets": targets,
    }


def _variable(name: str, query: str, *, several: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        **({"current": {"text": "All", "value": "$__all"}} if several else {}),
    }
