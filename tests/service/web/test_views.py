"""The views of the page in a real browser: conversation, filters, comparison, the walk through the graph, documents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from hirag_dist.service.http_api.openai_requests import Turn, standalone_question
from hirag_dist.types import Facet
from tests.service import fakes
from tests.service.web import toy_graph

Serve = Callable[..., Any]
See = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the browser

FACETS = (
    Facet("published", "date", documents=3, min="2020-01-01T00:00:00Z", max="2024-05-06T00:00:00Z"),
    Facet("tags", "string", list=True, documents=2, distinct=3, values=(('a "b"', 2), ("<i>c</i>", 1))),
    Facet("draft", "bool", documents=3, distinct=2, values=((False, 2), (True, 1))),
)


async def explored(visit: See, served: Any, calls: toy_graph.Calls, fields: str = "entity=e1", **options: Any) -> Any:
    """The view of the graph, with the calls of the toy graph."""
    seen = await visit(served.url, **options)
    await seen.page.route(toy_graph.PREFIX, calls.answer)
    await seen.page.goto(f"{served.url}#view=explore&{fields}")
    await seen.page.locator("#walk-card .card-title").wait_for()
    return seen.page


def node(page: Any, name: str) -> Any:
    """A node of the graph by the name of its entity."""
    return page.locator(f'#walk-canvas .node[aria-label^="{name},"]')


async def test_a_walk_from_an_entity_to_its_document(serve: Serve, visit: See) -> None:
    calls = toy_graph.Calls()
    page = await explored(visit, await serve(), calls)
    card = page.locator("#walk-card")
    title = card.locator(".card-title")
    assert await title.inner_text() == "Lighthouse"
    headings = (
        "[...document.querySelectorAll('h1, h2, h3, h4')].filter(e => e.checkVisibility()).map(e => +e.tagName[1])"
    )
    assert all(below - above <= 1 for above, below in pairwise(await page.evaluate(headings)))  # no level is left out
    assert await page.locator("#walk-canvas .node").count() == 3  # with its two neighbours
    await node(page, "Lamp").click()
    await card.get_by_text("Burns <b>oil</b>.").first.wait_for()  # text, never markup
    assert await page.evaluate("location.hash") == "#view=explore&entity=e3"
    await card.get_by_role("button", name="+ neighbours").press("Enter")
    await node(page, "Storm").wait_for()
    assert await page.evaluate("document.activeElement.closest('#walk-card') !== null")  # the card was drawn again
    await card.get_by_role("button", name="The light and its people").first.click()  # up the hierarchy
    await card.get_by_text("Below: what it summarises").wait_for()
    assert await page.evaluate("document.activeElement.textContent") == "The light and its people"
    assert await page.locator("#walk-canvas .edge.upward").count() == 3
    await card.get_by_role("button", name="Keeper person").click()  # and down
    await card.locator("summary", has_text="p. 7").click()
    assert "Monday" in await card.locator(".passage").inner_text()
    await card.get_by_role("button", name="Open the document").click()
    reader = page.get_by_role("dialog")
    await reader.locator("#reader-note").get_by_text(f"of {len(toy_graph.TEXT)}").wait_for()
    assert await reader.locator("#reader-text").inner_text() == toy_graph.TEXT
    assert await reader.locator("mark").inner_text() == "The keeper lit the lamp."
    assert await reader.locator(".cited-passage").inner_text() == toy_graph.PASSAGE  # after a character of two units
    assert await reader.locator("a").get_attribute("href") == "https://example.org/log.pdf#page=7"
    await page.keyboard.press("Escape")
    await page.go_back()  # to the summary
    await title.get_by_text("The light and its people").wait_for()


async def test_a_path_a_community_and_a_hub(serve: Serve, visit: See) -> None:
    calls = toy_graph.Calls()
    page = await explored(visit, await serve(), calls)
    card = page.locator("#walk-card")
    await card.get_by_role("button", name="Path from here").click()
    await page.keyboard.type("Ship")
    await page.keyboard.press("Enter")
    await card.get_by_text("Lighthouse → Ship").wait_for()
    assert ("FindPath", {"source": "e1", "target": "Ship"}) in calls.made
    assert await page.locator("#walk-canvas .edge.taken").count() == 3
    await card.get_by_role("button", name="Ship").click()
    await node(page, "Ship").press("+")
    await page.locator("#status").get_by_text("8 entities added, 4 more are not in view").wait_for(state="attached")
    await node(page, "Ship").press("-")
    await page.locator("#status").get_by_text("8 entities taken out of view").wait_for(state="attached")
    await card.locator(".row-link", has_text="The rock").click()
    await card.get_by_text("kept by <i>one</i> person").wait_for()
    assert await card.locator(".description :is(a, i)").count() == 0
    await card.locator(".row-link", has_text="The coast").click()  # its parent
    await card.get_by_text("Communities inside it").wait_for()
    await page.fill("#find-name", "Atlantis")
    await page.press("#find-name", "Enter")
    await card.get_by_role("alert").get_by_text("There is nothing of that name").wait_for()
    await page.get_by_role("button", name="Clear").click()
    await page.fill("#find-name", "Atlantis")
    await page.press("#find-name", "Enter")
    trouble = page.locator("#trouble")
    await trouble.get_by_text("There is nothing of that name").wait_for()
    assert (await trouble.inner_text()).splitlines()[-1] == await trouble.locator("p").last.inner_text()


async def test_a_conversation(serve: Serve, visit: See) -> None:
    served = await serve()
    seen = await visit(served.url)
    await seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page = await seen.ask()
    await page.get_by_text("100 tokens read").wait_for()
    assert await page.locator("#question").input_value() == ""
    await seen.ask("And when?")
    wanted = standalone_question(
        [Turn("user", "Who lit the lamp?"), Turn("assistant", fakes.ANSWER.text), Turn("user", "And when?")]
    )
    assert await page.locator("#asked q").evaluate("one => one.textContent") == wanted
    await page.locator("#turns").get_by_text("2 questions").wait_for()
    assert served.engine.queries[-1].question == wanted
    await page.locator("#turns button").first.click()
    assert await page.locator("#asked h2").inner_text() == "Who lit the lamp?"
    await page.get_by_role("button", name="Copy with citations").click()
    await page.get_by_role("button", name="Copied").wait_for()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("**Who lit the lamp?**\n\nThe keeper lit it [E2].\n\n[E2] Wärterin (entity)")
    await page.get_by_role("button", name="Copy link").click()
    await page.locator("#status").get_by_text("Copied.").wait_for(state="attached")
    shared = await page.evaluate("navigator.clipboard.readText()")
    assert shared == f"{served.url}#view=ask&q=Who+lit+the+lamp%3F"
    await page.get_by_role("button", name="New conversation").click()
    assert await page.locator("#turns").is_hidden()
    assert await page.locator("#follow-choice").is_hidden()
    n_asked = len(served.engine.queries)
    other = (await visit(shared)).page  # a link fills the field, and spends nothing
    await other.get_by_text("3 documents").wait_for()
    assert await other.locator("#question").input_value() == "Who lit the lamp?"
    assert len(served.engine.queries) == n_asked


async def test_filters_from_facets(serve: Serve, visit: See) -> None:
    engine = fakes.FakeEngine()
    engine.info = replace(engine.info, facets=FACETS, as_of_field="published")
    served = await serve(engine)
    calls = toy_graph.Calls("first", "second")
    seen = await visit(served.url)
    page = seen.page
    await page.route(toy_graph.PREFIX, calls.answer)
    await page.reload()
    await page.locator("#filters summary").click()
    await page.get_by_label("published from").fill("2021-02-03")
    await page.get_by_label('a "b"').check()
    await page.get_by_label("<i>c</i>").check()
    await page.get_by_label("false").check()
    wanted = r'published >= 2021-02-03 and tags has any ("a \"b\"", "<i>c</i>") and draft = false'
    assert await page.locator("#filter").input_value() == wanted
    await page.get_by_label("As of").fill("2023-01-01")
    await seen.ask()
    await page.get_by_text("100 tokens read").wait_for()
    assert (served.engine.queries[-1].filter, served.engine.queries[-1].as_of) == (wanted, "2023-01-01")
    assert await page.locator("#index option").all_inner_texts() == ["First", "Second"]
    assert await page.locator("#index").input_value() == "first"
    await page.locator("#views").get_by_role("link", name="Explore").click()
    await page.locator(".chip-link", has_text="Lighthouse").click()
    await page.locator("#walk-card .card-title").wait_for()
    assert calls.made[-1][1]["filter"] == wanted
    await page.evaluate("location.hash = '#view=ask'")
    await page.wait_for_function("document.querySelector('#filter').value === ''")
    assert not await page.get_by_label("false").is_checked()
    await page.locator("#index").select_option("second")
    await page.locator("#trouble").get_by_text("there is no 'second' among those").wait_for()  # asked by its name
