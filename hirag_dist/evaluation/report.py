"""The report of an evaluation: `report.json` for machines, `report.html` for people, `outcomes/` unit by unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from hirag_dist._version import __version__
from hirag_dist.core.text.normalize import count_plural
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, Outcomes, json_line
from hirag_dist.html import Section, Table, render_template
from hirag_dist.llm.usage import dollars, total_cost
from hirag_dist.storage.store import Store
from hirag_dist.types.index_info import Interval

SCHEMA = "hirag_dist.evaluation/3"
_LETTERS_SHOWN = 200


async def write_report(session: Session, findings: Findings, seconds: float) -> dict[str, Any]:
    """Write the report, its page and the outcomes into the evaluation's folder; return the report.

    Raises:
        StoreError: the folder cannot be written to; files are there whole or as they were.
    """
    store = Store(session.order.out)
    for outcomes in session.steps:
        await _write_outcomes(store, outcomes)
    report = make_report(session, findings, seconds)
    store.write_json("report.json", report)
    store.write_bytes("report.html", render_page(report, findings.sections).encode("utf-8", "replace"))
    return report


def make_report(session: Session, findings: Findings, seconds: float) -> dict[str, Any]:
    """Return the report as JSON. docs/how-to/evaluate.md#evaluation-report describes it."""
    order, snapshot = session.order, session.snapshot
    index = None
    if snapshot is not None:
        built = snapshot.manifest
        index = {
            "uri": snapshot.store.uri,  # without the credentials that the option may hold
            "snapshot": built.snapshot_id,
            "complete": built.complete,
            "embedder": built.embedder,
            "dim": built.dim,
            "counts": dict(built.counts),
        }
    rows = [{"step": step} | row for step, meter in session.usage.items() for row in meter.rows()]
    return {
        "schema": SCHEMA,
        "kind": order.kind,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "complete": not session.letters,
        "index": index,
        "questions": dict(findings.questions),
        "retrieval": session.config.retrieval.model_dump(mode="json"),
        "variants": {name: each.model_dump(mode="json") for name, each in order.variants.items()},
        "results": plain(findings.results),
        "units": {"new": session.n_new, "from_before": session.n_reused},
        "usage": rows,
        "total_usd": total_cost(row["cost_usd"] for row in rows),
        "this_run": session.sent.sent_sums(),
        "seconds": round(seconds, 2),
        "dead_letters": {
            "count": len(session.letters),
            "shown": [asdict(letter) for letter in session.letters[:_LETTERS_SHOWN]],
        },
    }


def plain(value: Any) -> Any:
    """Return a value as JSON has it: intervals as {value, low, high}, what is no number as null."""
    if isinstance(value, Interval):
        return {"value": plain(value.value), "low": plain(value.low), "high": plain(value.high)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


async def _write_outcomes(store: Store, outcomes: Outcomes[Any]) -> None:
    """Write a line of JSON a unit: those that are done in their order, then the dead letters."""
    with store.create(f"outcomes/{outcomes.step}.jsonl") as file:
        async for outcome in outcomes:
            line = {
                "id": outcome.id,
                "value": outcome.value,
                "seconds": round(outcome.seconds, 4),
                "usage": outcome.usage.rows(),
            }
            file.write(json_line(line))
        for letter in outcomes.letters:
            said = {"id": letter.id, "dead_letter": letter.reason, "attempts": letter.attempts}
            file.write(json_line(said))


def render_page(report: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return the page of a report. Its texts, such as questions, are escaped.

    Args:
        sections: HTML of the sections of the kind; those of all kinds follow.
    """
    tiles = {
        "units": sum(report["units"].values()),
        "calls": sum(row["calls"] for row in report["usage"]),
        "tokens": sum(row["input_tokens"] + row["output_tokens"] for row in report["usage"]),
    }
    questions = {name: report["questions"][name] for name in ("questions",) if name in report["questions"]}
    return render_template(
        __package__,
        "page.html",
        report=report,
        tiles=[
            *(count_plural(count, name) for name, count in (questions | tiles).items()),
            f"{dollars(report['total_usd'])} cost",
        ],
        sections=[*sections, *_letters(report), *_bill(report)],
    )


def _letters(report: Mapping[str, Any]) -> list[Section]:
    letters = report["dead_letters"]
    if not letters["count"]:
        return []
    rows = [[letter["step"], letter["id"], letter["reason"], letter["attempts"]] for letter in letters["shown"]]
    more = letters["count"] - len(rows)
    note = "They count in no figure above. The next run of the same command tries them again."
    return [
        Table("Dead letters", ["step", "unit", "reason", "attempts"], rows, note + (f" {more:,} more." if more else ""))
    ]


def _bill(report: Mapping[str, Any]) -> list[Section]:
    if not report["usage"]:
        return []
    names = ("calls", "ledger_hits", "input_tokens", "cached_tokens", "output_tokens", "rejected", "cost_usd")
    heads = ["step", "role", "endpoint", "model", "calls", "ledger", "tokens in", "cached", "out", "refused", "cost $"]
    rows = [
        [row["step"], row["role"], row["endpoint"], row["model"], *(row[name] for name in names)]
        for row in report["usage"]
    ]
    return [Table("Bill", heads, rows, "The cost of these replies, in this run or an earlier one.", ".4f")]
