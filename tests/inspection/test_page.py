"""The page is well formed, safe whatever the names are, and needs no network."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from lxml import etree

from hirag_dist.inspection import graph_view, inspect_tables, render_page

Tables = dict[str, pa.Table]
BROWSER = shutil.which("chromium")


def page_of(tables: Tables) -> str:
    manifest = {"snapshot_id": "s1", "created_at": "2025-01-01T00:00:00Z", "complete": False}
    return render_page(inspect_tables(tables, manifest), graph_view(tables))


def parsed(page: str) -> etree._Element:
    """The page read by a parser that does not mend: every tag must be closed, nested and known."""
    parser = etree.HTMLParser(recover=True, huge_tree=True)
    tree = etree.fromstring(page.encode(), parser)
    known = {"header", "main", "section", "aside", "svg", "g", "rect", "polyline", "canvas", "line", "text", "circle"}
    faults = [fault for fault in parser.error_log if not any(f"Tag {name} " in fault.message for name in known)]
    faults = [fault for fault in faults if "Tag title invalid" not in fault.message]
    assert not faults, faults
    return tree


def data_of(page: str) -> dict[str, dict[str, list[object]]]:
    found = parsed(page).xpath('//script[@id="data"]/text()')
    return json.loads(found[0])  # type: ignore[no-any-return]


@pytest.mark.parametrize("which", ["tiny", "empty", "generated"])
def test_the_page_is_well_formed_and_whole(which: str, request: pytest.FixtureRequest) -> None:
    page = page_of(request.getfixturevalue(which))
    tree = parsed(page)
    assert "{{" not in page
    assert [node.text for node in tree.iter("h1")] == ["HiRAG index"]
    assert len(tree.xpath("//script")) == 2
    headings = [node.text for node in tree.iter("h2")]
    assert headings[:4] == ["Layers", "Cluster sparsity", "Degrees", "Shape of the graph"]


def test_it_loads_nothing(generated: Tables) -> None:
    page = page_of(generated)
    assert not re.search(r"https?:|//cdn|@import|url\(|\bfetch\(|XMLHttpRequest|WebSocket|sendBeacon|import\(", page)
    tree = parsed(page)
    assert tree.xpath("//@src") == []
    assert tree.xpath("//@href") == ["data:,"]
    policy = tree.xpath('//meta[@http-equiv="Content-Security-Policy"]/@content')[0]
    assert policy.startswith("default-src 'none'")


def test_names_stay_names(make_tables: Callable[[Mapping[str, str]], Tables], nasty: dict[str, str]) -> None:
    tables = make_tables(nasty)
    page = page_of(tables)
    assert len(parsed(page).xpath("//script")) == 2
    assert "<script>alert" not in page
    shown = data_of(page)["entities"]["name"]
    expected = {name: " ".join(nasty[name].split()) for name in nasty}
    assert sorted(map(str, shown)) == sorted(expected.values())
    links = parsed(page).xpath("//button[@data-find]")
    assert {expected[name] for name in "abcd"} <= {" ".join(link.get("data-find").split()) for link in links}


@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
@pytest.mark.browser
def test_a_browser_runs_it_without_a_complaint(
    make_tables: Callable[[Mapping[str, str]], Tables], nasty: dict[str, str], tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text(page_of(make_tables(nasty)), encoding="utf-8")
    flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    flags += "--disable-component-update --disable-sync --enable-logging=stderr --virtual-time-budget=3000 --dump-dom"
    assert BROWSER
    command = [
        BROWSER,
        *flags.split(),
        f"--user-data-dir={tmp_path / 'profile'}",
        f"{path.as_uri()}#q={quote('</script>')}",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert "CONSOLE" not in done.stderr
    panel = etree.fromstring(done.stdout.encode(), etree.HTMLParser()).xpath('//aside[@id="panel"]')[0]
    assert panel.xpath("./h2/text()") == [nasty["a"]]
    names = [" ".join(text.split()) for text in panel.xpath(".//li//button/span/text()")]
    assert names[1:3] == ["Friends", "The two"]  # after its summary
