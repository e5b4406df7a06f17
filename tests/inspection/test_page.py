"""The page is well formed, safe whatever the names are, and needs no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from lxml import etree

from hirag_dist.inspection.page import outline, render_page
from hirag_dist.inspection.summary import inspect_tables
from tests.core.test_drift import REPORT, UPDATE

Tables = dict[str, pa.Table]


def page_of(tables: Tables) -> str:
    manifest = {"snapshot_id": "s1", "created_at": "2025-01-01T00:00:00Z", "complete": False}
    return render_page(inspect_tables(tables, manifest), outline(tables))


KNOWN = r"Tag (header|main|section|aside|svg|g|rect|polyline|canvas|line|text|circle|title) invalid"


def parsed(page: str) -> etree._Element:
    """The page read by a parser that does not mend: every tag must be closed, nested and known."""
    parser = etree.HTMLParser(recover=True, huge_tree=True)
    tree = etree.fromstring(page.encode(), parser)
    assert not [fault for fault in parser.error_log if not re.search(KNOWN, fault.message)]
    return tree


def text_of(node: etree._Element) -> str:
    """The text of a node and of those in it, with single spaces."""
    return " ".join("".join(node.itertext()).split())


@pytest.mark.parametrize("which", ["tiny", "empty", "generated"])
def test_the_page_is_well_formed_and_whole(which: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(which))
    tree = parsed(page)
    assert "{{" not in page
    assert [node.text for node in tree.iter("h1")] == ["HiRAG index"]
    assert not tree.xpath("//script")
    headings = [node.text for node in tree.iter("h2")]
    assert headings[:5] == ["Communities", "Layers", "Cluster sparsity", "Shape of the graph", "Path lengths"]


def test_reports_and_bill_are_named_as_on_the_console(tiny: Tables) -> None:
    page = parsed(page_of(tiny))
    assert "83% of the entities; written by endpoint llm: 2." in text_of(page)
    bill = next(table for table in page.xpath("//table") if "ledger" in text_of(table))
    heads = list(map(text_of, bill.xpath(".//th")))
    assert heads[:3] + heads[-3:] == ["stage", "endpoint", "model", "429", "refused", "cost"]
    cells = [list(map(text_of, row.xpath("./td"))) for row in bill.xpath(".//tr")]
    assert cells[1][:4] == ["extract", "llm", "m, n", "6"]
    assert cells[-1][:4] == ["total", "", "", "8"]


def test_it_loads_nothing(generated: Tables) -> None:
    page = page_of(generated)
    assert not re.search(r"https?:|//cdn|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", page)
    tree = parsed(page)
    assert tree.xpath("//@src") == []
    assert tree.xpath("//@href") == ["data:,"]
    policy = tree.xpath('//meta[@http-equiv="Content-Security-Policy"]/@content')[0]
    assert policy.startswith("default-src 'none'")


def test_names_stay_names(make_tables: Callable[[Mapping[str, str]], Tables], nasty: dict[str, str]) -> None:
    page = page_of(make_tables(nasty))
    tree = parsed(page)
    assert not tree.xpath("//script")
    assert "<script>alert" not in page
    assert {" ".join(nasty[name].split()) for name in "abcd"} <= set(map(text_of, tree.xpath("//td")))


def test_communities_are_a_tree_with_their_reports(tiny: Tables) -> None:
    (big,) = outline(tiny)
    assert (big.title, big.entities, big.rating) == ("Friends", 5, 7.5)
    assert (big.summary, list(big.findings)) == ("Three friends.", [("They meet", "Often.")])
    assert big.members == ["a", "b", "c", "S", "d"], "most neighbours first"
    assert [(node.title, node.entities, node.rating) for node in big.children] == [
        ("The two", 3, 7.5),
        ("c, d, …", 2, None),
    ]
    assert [node.children for node in outline(tiny, max_communities=1)] == [[]]
    shown = list(map(text_of, parsed(page_of(tiny)).xpath("//summary/b")))
    assert shown == ["Friends", "The two", "c, d, …"]


def test_the_page_shows_updates_and_drift_where_they_are_known(tiny: Tables) -> None:
    found = inspect_tables(tiny, {})
    plain = parsed(render_page(found, outline(tiny)))
    assert not {"Updates", "Drift"} & {node.text for node in plain.iter("h2")}
    page = parsed(render_page(replace(found, update=UPDATE, drift=REPORT), outline(tiny)))
    assert {"Updates", "Drift"} <= {node.text for node in page.iter("h2")}
    assert "compactness ratio" in text_of(page)
