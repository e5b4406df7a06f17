"""The page in a real browser: down the hierarchy to a sentence, a path, the table, a phone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from hirag_dist import schemas
from hirag_dist.inspection import choose_passages, graph_view, inspect_tables, render_page
from tests.inspection.indexes import tiny_index

See = Callable[..., Awaitable[Any]]

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the browser

TEXT = "A 🐚 prologue. Mr. Ben met <b>Ann</b> there. They left."
NAMES = {"a": "Ann", "b": "Ben", "S": "The two"}


def page_in(folder: Path) -> str:
    """Write the page of the tiny index with a document of three sentences, and return its address."""
    tables = tiny_index(NAMES)
    document = tables["documents"].to_pylist()[0] | {"title": "Log", "text": TEXT}
    tables["documents"] = pa.Table.from_pylist([document], schemas.DOCUMENTS)
    chunk = tables["chunks"].to_pylist()[0] | {"start": 2, "end": len(TEXT)}
    tables["chunks"] = pa.Table.from_pylist([chunk], schemas.CHUNKS)
    view = graph_view(tables)
    passages = choose_passages(tables, view.entities["id"])
    page = render_page(inspect_tables(tables, {}), view, passages, "http://localhost:8080/")
    (folder / "page.html").write_text(page, encoding="utf-8")
    return (folder / "page.html").as_uri()


async def test_from_a_summary_to_the_sentence(visit: See, tmp_path: Path) -> None:
    page = (await visit(f"{page_in(tmp_path)}#entity=1:S")).page
    panel = page.locator("#panel")
    assert await panel.locator("h2").inner_text() == "The two"
    await panel.get_by_text("Below: what it summarises").wait_for()
    await panel.get_by_role("button", name="Ann layer 0").click()
    assert page.url.endswith("#entity=0%3Aa")
    link = await panel.get_by_role("link", name="Question page").get_attribute("href")
    assert link == "http://localhost:8080/#view=explore&entity=0%3Aa"
    await panel.locator(".passage").click()
    assert await panel.locator(".document").inner_text() == TEXT
    assert await panel.locator(".document mark").inner_text() == "Mr. Ben met <b>Ann</b> there."
    assert await panel.locator(".chunk").inner_text() == TEXT[2:]
    await page.keyboard.press("Enter")  # the focus is on the way back
    assert await panel.locator("h2").inner_text() == "Ann"
    await panel.get_by_role("button", name="Path from here").click()
    await page.fill("#search", "d")
    await page.press("#search", "Enter")
    await panel.get_by_role("button", name="Path to here").click()
    assert await panel.locator(".way button span").all_inner_texts() == ["Ann", "c", "d"]
    await page.get_by_role("button", name="table").click()
    assert await page.locator("#table tbody tr").count() == 6
    await page.locator("#table").get_by_role("button", name="Ben").click()
    assert await panel.locator("h2").inner_text() == "Ben"
