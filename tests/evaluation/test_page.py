"""The page of a report: hostile texts stay texts, charts hold what they are given, nothing comes from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from lxml import html

from hirag_dist.evaluation.report import render_page
from hirag_dist.html import Bars, Lines, Section, Table, Text
from hirag_dist.readers import ReadOptions, find_inputs, read_source
from hirag_dist.types.index_info import Interval

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
    assert texts(page, "//h2").count(NASTY) == 4


def test_it_needs_no_network() -> None:
    page = render_page(report(), sections_of("plain"))
    assert re.search(r"default-src 'none'", page)
    assert not re.findall(r"(?:src|href)=\"(?!data:,)[^\"]+", page)
    assert "http" not in page.replace("http-equiv", "")


def test_a_report_below_input_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(render_page(report(), []), encoding="utf-8")
    (tmp_path / "other.html").write_text("<title>T</title><p>A page about hirag-dist.</p>")
    documents = [list(read_source(source, ReadOptions())) for source in find_inputs([str(tmp_path)])]
    assert [len(found) for found in documents] == [1, 0]
