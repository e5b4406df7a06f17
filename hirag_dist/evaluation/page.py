"""A report as one HTML file that a person can look at, with no network, no script and nothing to install."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from hirag_dist.core.text.normalize import count_noun, shorten
from hirag_dist.evaluation.metrics.statistics import Interval
from hirag_dist.evaluation.report_model import Bars, Cell, Lines, Section, Table, Text
from hirag_dist.evaluation.svg import draw_bars, draw_lines, draw_matrix
from hirag_dist.inspection.page import html_table, page_part

_CELL_CHARS = 2000
_TALL_ROWS = 24  # a longer table scrolls in its place


def render_page(report: Mapping[str, Any], sections: Sequence[Section]) -> str:
    """Return the page of a report. Whatever texts it holds, of questions for one, are shown as text.

    Args:
        report: as `report.make_report` gives it.
        sections: of the kind; those that every kind has follow them.
    """
    common: list[Section] = [*_letters(report), *_bill(report)]
    parts = {
        "title": escape(f"Evaluation: {report['kind']}"),
        "css": page_part("page.css") + _part("page.css"),
        "about": _about(report),
        "tiles": _tiles(report),
        "sections": "\n".join(_section(each) for each in [*sections, *common]),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _part("page.html"))


@cache
def _part(name: str) -> str:
    return files("hirag_dist.evaluation").joinpath(name).read_text(encoding="utf-8")


def _section(section: Section) -> str:
    note = f'<p class="soft">{escape(section.note)}</p>' if not isinstance(section, Text) and section.note else ""
    if isinstance(section, Text):
        body = "".join(f'<p dir="auto">{escape(text)}</p>' for text in section.paragraphs)
    elif isinstance(section, Table):
        body = _table(section)
        if len(section.rows) > _TALL_ROWS:
            body = f'<div class="tall">{body}</div>'
    elif isinstance(section, Bars):
        body = f'<div class="chart">{draw_bars(section)}</div>'
    elif isinstance(section, Lines):
        body = f'<div class="chart">{draw_lines(section)}</div>'
    else:
        body = draw_matrix(section)
    return f'<section class="card"><h2>{escape(section.title)}</h2>{note}{body}</section>'


def _table(table: Table) -> str:
    numbers = {
        place
        for place in range(len(table.columns))
        if all(not isinstance(row[place], str) for row in table.rows) and table.rows
    }
    rows = [[_cell(cell, table.form) for cell in row] for row in table.rows]
    heads = [escape(name) for name in table.columns]
    return html_table(heads, rows, texts=set(range(len(table.columns))) - numbers)


def _cell(cell: Cell, form: str) -> str:
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return "\u2013"
    if isinstance(cell, Interval):
        if math.isnan(cell.value):
            return "\u2013"
        value, low, high = (escape(format(each, form)) for each in (cell.value, cell.low, cell.high))
        return f"{value} <small>[{low}, {high}]</small>"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return escape(format(cell, form))
    return f'<span dir="auto">{escape(shorten(cell, _CELL_CHARS))}</span>'


def _about(report: Mapping[str, Any]) -> str:
    parts = []
    if report["index"]:
        parts.append(f"snapshot <code>{escape(report['index']['snapshot'])}</code> of {escape(report['index']['uri'])}")
    parts.append(escape(f"made {report['created_at']} by hirag_dist {report['version']}"))
    done = '<span class="chip good">complete</span>'
    lacking = f'<span class="chip bad">{count_noun(report["dead_letters"]["count"], "dead letter")}</span>'
    return f"{' · '.join(parts)} {done if report['complete'] else lacking}"


def _tiles(report: Mapping[str, Any]) -> str:
    tiles = [(name, f"{report['questions'][name]:,}") for name in ("questions",) if name in report["questions"]]
    tiles += [
        ("units", f"{sum(report['units'].values()):,}"),
        ("calls", f"{sum(row['calls'] for row in report['usage']):,}"),
        ("tokens", f"{sum(row['input_tokens'] + row['output_tokens'] for row in report['usage']):,}"),
        ("cost", f"${report['total_usd']:,.2f}"),
    ]
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in tiles)


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
    return [Table("Bill", heads, rows, "What these replies cost, whenever they were paid.", ".4f")]
