"""The page of a report: hostile texts stay texts, charts hold what they are given, nothing comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from lxml import html

from hirag_dist.evaluation.report import render_page
from hirag_dist.html import Bars, Lines, Matrix, Section, Table, Text
from hirag_dist.readers import ReadOptions, find_inputs, read_source
from hirag_dist.types.statistics import NOTHING, Interval

NASTY = "</style></title><script>alert(1)</script><img src=x onerror='alert(2)'>\"'&amp;{{css}}\u202e"


def report(**more: Any) -> dict[str, Any]:
    made = {
        "kind": "toy",
        "created_at": "2026-01-01T00:00:00+00:00",
        "version": "1",
        "complete": True,
        "index": {"snapshot": "abc", "uri": "index"},
        "questions": {"questions": 2},
        "units": {"new": 1, "from_before": 2},
        "usage": [],
        "total_usd": 0.0,
        "dead_letters": {"count": 0, "shown": []},
    }
    return made | more


def texts(page: str, path: str) -> list[str]:
    return [" ".join(found.itertext()) for found in html.fromstring(page).xpath(path)]


def sections_of(text: str) -> list[Section]:
    value = Interval(0.5, 0.25, 0.75)
    return [
        Text(text, [text]),
        Table(text, [text, "n"], [[text, 1]], text),
        Bars(text, {text: [(text, value)], "b": [(text, value)]}, text),
        Lines(text, text, text, {text: [(0.0, 1.0)], "b": [(0.0, 1.0)]}, text),
        Matrix(text, [text, "b"], [[None, 0.5], [0.5, None]], text),
    ]


def test_hostile_texts_stay_texts() -> None:
    letter = {"step": NASTY, "id": NASTY, "reason": NASTY, "attempts": 1}
    index = {"snapshot": NASTY, "uri": NASTY}
    usage = {"step": NASTY, "role": NASTY, "endpoint": NASTY, "model": NASTY, "calls": 1, "ledger_hits": 0}
    usage |= {"input_tokens": 1, "cached_tokens": 0, "output_tokens": 1, "rejected": 0, "cost_usd": 0.0}
    letters = {"count": 3, "shown": [letter]}
    made = report(kind=NASTY, index=index, dead_letters=letters, complete=False, usage=[usage])
    page = render_page(made, sections_of(NASTY))
    tree = html.fromstring(page)
    assert not tree.xpath("//script | //img | //iframe | //link[not(@rel='icon')]")
    assert not [name for each in tree.iter() if isinstance(each.tag, str) for name in each.attrib if name[:2] == "on"]
    assert page.count("<style>") == 1
    assert texts(page, "//h2").count(NASTY) == 5


def test_it_needs_no_network() -> None:
    page = render_page(report(), sections_of("plain"))
    assert re.search(r"default-src 'none'", page)
    assert not re.findall(r"(?:src|href)=\"(?!data:,)[^\"]+", page)
    assert "http" not in page.replace("http-equiv", "")


def test_tables_show_intervals_dashes_and_numbers() -> None:
    rows = [["a", Interval(0.5, 0.25, 0.75), 1234, None, True], ["b", NOTHING, 0.5, float("nan"), False]]
    page = render_page(report(), [Table("T", ["name", "v", "n", "none", "yes"], rows, form=".1%")])
    cells = [" ".join(cell.split()) for cell in texts(page, "//td")]
    assert cells == ["a", "50.0% [25.0%, 75.0%]", "1,234", "–", "yes", "b", "–", "50.0%", "–", "no"]
    assert [each.get("class") for each in html.fromstring(page).xpath("//tr[2]/td")] == [None, *["number"] * 4]


def bars_of(page: str) -> list[tuple[float, float]]:
    drawn = html.fromstring(page).xpath("//svg//g/rect")
    return [(float(each.get("x")), float(each.get("width"))) for each in drawn]


def test_bars_are_as_long_as_their_values() -> None:
    points = [("one", Interval(0.2, 0.1, 0.3)), ("two", Interval(0.6, 0.5, 0.7)), ("none", NOTHING)]
    page = render_page(report(), [Bars("B", {"s": points})])
    (start, short), (other, long) = bars_of(page)
    assert start == other
    assert long == pytest.approx(3 * short, abs=0.2)
    assert "two, s: 60.0%, 50.0% to 70.0%" in page
    assert texts(page, "//svg/text[@class='soft']") == ["–"]


def test_a_report_below_input_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_page(report(), []), encoding="utf-8")
    (tmp_path / "other.html").write_text("<title>T</title><p>A page about hirag-dist.</p>")
    documents = [list(read_source(source, ReadOptions())) for source in find_inputs([str(tmp_path)])]
    assert [len(found) for found in documents] == [1, 0]
