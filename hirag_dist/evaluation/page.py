"""A report as one self-contained HTML file without scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hirag_dist.html import Section, Table, render_template
from hirag_dist.llm.usage import dollars


def render_page(report: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return the page of a report. Its texts, such as questions, are escaped.

    Args:
        report: as `report.make_report` gives it.
        sections: of the kind; the sections of all kinds follow them.
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
            *((name, f"{count:,}") for name, count in (questions | tiles).items()),
            ("cost", dollars(report["total_usd"])),
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
