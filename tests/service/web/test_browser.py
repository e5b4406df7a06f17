"""The page in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.service.http_api.openai_requests import Turn, standalone_question
from hirag_dist.types import (
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    Facet,
    PathItem,
    SourceItem,
    TripleItem,
)
from tests.service import fakes
from tests.service.web import toy_graph

HOSTILE = (
    "<script>window.harmed = 1; alert(1)</script>",
    '"><img src=x onerror="window.harmed = 2">',
    "javascript:window.harmed=3",
    "<svg onload=window.harmed=4></svg>",
    "{{constructor.constructor('window.harmed=5')()}}</textarea><iframe src=javascript:window.harmed=6>",
)

Serve = Callable[..., Any]
See = Callable[..., Any]

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the browser


async def ask(page: Any, question: str = "Who lit the lamp?") -> Any:
    await page.fill("#question", question)
    await page.press("#question", "Enter")
    return page


@pytest.mark.smoke
async def test_a_question_shows_its_levels_its_bridge_and_a_cited_answer(serve: Serve, visit: See) -> None:
    served = await serve()
    page = await visit(served.url)
    await page.get_by_text("3 documents").wait_for()
    await ask(page)
    answer = page.locator("#answer")
    await answer.get_by_text("The keeper lit it").wait_for()
    await answer.get_by_text("100 tokens read, 7 written").wait_for()
    assert not await page.locator("#bridge").is_visible()
    await page.get_by_text("How this was found").click()
    entity = page.locator("#local [data-item=e1]")
    await entity.wait_for()  # what a folded part holds has no text until it is drawn
    assert (await entity.inner_text()).split("\n")[0] == "text"
    assert "Lighthouse" in (await page.locator("#local").inner_text())
    assert "The rock" in (await page.locator("#global").inner_text())
    assert (
        await page.locator("#bridge svg .node").count()
    ) == 3  # Lighthouse, keeper, and the one that no path reaches
    assert (await page.locator("#bridge svg .edge.onpath").count()) == 1
    assert (await page.locator("#bridge svg .edge.missing").count()) == 1
    assert "no path connects them" in (await page.locator("#bridge .pairs").inner_text())
    assert "Wärterin 灯台守" in (await page.locator("#bridge").inner_text())
    assert (await page.locator("#timings .times span").count()) == 2  # search, and the rest of the total
    assert served.engine.queries[-1].question == "Who lit the lamp?"
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_citation_opens_what_it_cites(serve: Serve, visit: See) -> None:
    cited = (Citation("S1", "chunk", "k1", "Log"), Citation("E1", "entity", "e1", "Lighthouse"))
    served = await serve()
    served.engine.answers("It was the keeper [S1][E1].", *cited)
    page = await ask(await visit(served.url))
    item = page.locator("#sources [data-item=k1]")
    assert not (await item.locator("p.body").is_visible())
    await page.locator("#answer .text .cite", has_text="S1").click()
    await item.locator("p.body").wait_for(state="visible")
    assert "The keeper lit the lamp." in (await item.inner_text())
    assert "10–42" in (await item.inner_text())
    assert (await page.evaluate("document.activeElement.closest('[data-item]').dataset.item")) == "k1"
    await page.keyboard.press("Enter")  # the focus is on its summary: it closes again
    await item.locator("p.body").wait_for(state="hidden")


async def test_what_documents_say_is_never_code(serve: Serve, visit: See) -> None:
    script, image, address, svg, mixed = HOSTILE
    entity = EntityItem("e1", script, image, mixed, 0, 0.5)
    key = EntityItem("e2", image, script, svg, 1, 0.4)
    whole = replace(
        fakes.WHOLE,
        local=(entity,),
        communities=(CommunityItem("c1", 0, mixed, script + image, 5.0, 1, 0.5),),
        key_entities=(entity, key),
        paths=(PathItem("e1", "e2", ("e1", "e3", "e2"), (script, svg, image)),),
        triples=(TripleItem("r1", "e1", "e3", script, svg, image, mixed, 1.0, 0.5),),
        claims=(ClaimItem("c1", script, image, "e1", "", mixed, svg, script, image, mixed + script, svg, "k1"),),
        sources=(
            SourceItem("k1", "d1", script, address, 0, 9, "\n".join(HOSTILE), 0.3),
            SourceItem("k2", "d2", image, "https://example.org/a?b=<c>", 0, 9, mixed, 0.2),
        ),
        context_refs={"S1": "k1", "R1": "r1", "E1": "e1"},
    )
    served = await serve(fakes.FakeEngine(whole=whole))
    told = f"{script} {image} **{svg}** `{address}`\n- {mixed} [S1]"
    served.engine.answers(told, Citation("S1", "chunk", "k1", image))
    page = await ask(await visit(served.url), image)
    await page.locator("#answer .cited").wait_for()
    await page.evaluate("document.querySelectorAll('#result details').forEach((one) => { one.open = true; })")
    await page.locator("#bridge .pairs button").first.click()
    await page.locator("#bridge svg .node").first.hover()
    assert script in (await page.locator("#answer .text").inner_text())
    assert (await page.locator("#sources .passage").first.inner_text()) == "\n".join(HOSTILE)
    assert script in (await page.locator("#hint").inner_text())
    assert (await page.evaluate("window.harmed")) is None
    assert (await page.locator("#result :is(script, img, iframe)").count()) == 0
    assert (await page.locator("#result a[target]").evaluate_all("links => links.map(link => link.protocol)")) == [
        "https:"
    ]
    assert await page.locator("#result a:not([target])").evaluate_all(
        "links => links.every(link => link.getAttribute('href').startsWith('#view='))"
    )


async def test_a_wrong_token_is_explained_and_a_right_one_stays_in_the_tab(
    serve: Serve, visit: See, tmp_path: Path
) -> None:
    served = await serve(callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("web").path)
    page = await visit(served.url)
    await page.get_by_text("This service requires a token.").wait_for()
    await page.fill("#token", "wrong-token")
    await page.press("#token", "Enter")
    await page.get_by_role("alert").get_by_text("The service does not know this token").wait_for()
    assert (await page.locator("#access").get_attribute("open")) is not None
    await ask(page)
    await page.get_by_role("alert").get_by_text("under Access, at the top").wait_for()
    await page.fill("#token", "web-token")
    await page.press("#token", "Enter")
    await page.get_by_text("3 documents").wait_for()
    assert not (await page.get_by_role("alert").is_visible())
    await ask(page)
    await page.get_by_text("100 tokens read").wait_for()
    assert "token" not in page.url
    assert (await page.evaluate("localStorage.length + document.cookie.length")) == 0
    await page.reload()
    await page.get_by_text("3 documents").wait_for()  # the tab still has it
    await page.locator("#access summary").click()
    await page.locator("#forget").click()
    await page.get_by_text("This service requires a token.").wait_for()


async def test_levels_come_one_by_one_and_asking_can_be_stopped(serve: Serve, visit: See) -> None:
    served = await serve()
    served.engine.gate = asyncio.Event()
    page = await visit(served.url)
    await page.uncheck("#want-answer")
    await page.locator("#options summary").click()
    await page.select_option("#mode", "hirag")
    await page.fill("#top-n", "7")
    await page.fill("#labels", "lang:de, team:legal")
    await ask(page)
    await page.locator("#progress").get_by_text("Looking").wait_for()
    await page.locator("#local [data-item=e1]").wait_for()  # while the engine still waits
    assert (await page.locator("#bridge").inner_text()) == ""
    assert await page.locator("#answer").is_hidden()
    await page.locator("#stop").click()
    await page.get_by_role("status").get_by_text("Stopped.").wait_for(state="attached")
    asked = served.engine.queries[-1]
    assert (asked.mode, asked.top_n, asked.labels) == ("hirag", 7, ("lang:de", "team:legal"))
    served.engine.gate.set()
    await ask(page)
    await page.locator("#bridge svg").wait_for()
    await page.get_by_role("status").get_by_text("The result is complete.").wait_for(state="attached")


async def test_the_whole_of_it_by_keyboard(serve: Serve, visit: See) -> None:
    page = await visit((await serve()).url)
    assert (await page.evaluate("document.activeElement.id")) == "question"
    await page.keyboard.type("Who lit the lamp?")
    await page.keyboard.press("Enter")
    await page.get_by_text("100 tokens read").wait_for()
    await page.locator("#jump button", has_text="Connections").focus()
    await page.keyboard.press("Enter")
    assert (await page.evaluate("document.activeElement.id")) == "bridge"
    await page.keyboard.press("Tab")  # into the tools of the graph
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")  # the next pair
    assert (await page.locator("#bridge .pairs button[aria-pressed=true]").count()) == 1
    unnamed = await page.evaluate(
        """[...document.querySelectorAll("button, input, select, textarea, summary, a")].filter((one) =>
        !(one.textContent.trim() || one.getAttribute("aria-label") || one.labels?.length)).length"""
    )
    assert unnamed == 0


async def test_only_modes_that_the_service_accepts_are_offered(serve: Serve, visit: See) -> None:
    costly = ["graphrag-global", "text-map-reduce"]
    for allowed, path in ((False, ""), (True, ""), (False, "#view=ask&mode=graphrag-global")):
        served = await serve(map_reduce=allowed)
        page = await visit(served.url + path)
        await page.get_by_text("3 documents").wait_for()
        offered = await page.locator("#mode option:enabled").evaluate_all("all => all.map((one) => one.value)")
        assert [mode for mode in offered if mode in costly] == (costly if allowed else [])
        assert (await page.locator("#mode").input_value()) in offered


FACETS = (
    Facet("published", "date", documents=3, min="2020-01-01T00:00:00Z", max="2024-05-06T00:00:00Z"),
    Facet("tags", "string", list=True, documents=2, distinct=3, values=(('a "b"', 2), ("<i>c</i>", 1))),
    Facet("draft", "bool", documents=3, distinct=2, values=((False, 2), (True, 1))),
)


async def explored(visit: See, served: Any) -> Any:
    """The view of the graph."""
    page = await visit(f"{served.url}#view=explore&entity=e1")
    await page.locator("#walk-card .card-title").wait_for()
    return page


def node(page: Any, name: str) -> Any:
    """A node of the graph by the name of its entity."""
    return page.locator(f'#walk-canvas .node[aria-label^="{name},"]')


async def test_a_walk_from_an_entity_to_its_document(serve: Serve, visit: See) -> None:
    page = await explored(visit, await serve(toy_graph.ToyGraph()))
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
    await card.locator(".passage").get_by_text("Monday").wait_for()
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
    engine = toy_graph.ToyGraph()
    page = await explored(visit, await serve(engine))
    card = page.locator("#walk-card")
    await card.get_by_role("button", name="Path from here").click()
    await page.keyboard.type("Ship")
    await page.keyboard.press("Enter")
    await card.get_by_text("Lighthouse → Ship").wait_for()
    assert ("find_path", ("e1", "Ship")) in [call[:2] for call in engine.lookups]
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
    page = await visit(served.url)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await ask(page)
    await page.get_by_text("100 tokens read").wait_for()
    assert await page.locator("#question").input_value() == ""
    await ask(page, "And when?")
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
    other = await visit(shared)  # a link fills the field, and spends nothing
    await other.get_by_text("3 documents").wait_for()
    assert await other.locator("#question").input_value() == "Who lit the lamp?"
    assert len(served.engine.queries) == n_asked


async def test_filters_from_facets(serve: Serve, visit: See) -> None:
    engine = toy_graph.ToyGraph()
    engine.info = replace(engine.info, facets=FACETS, as_of_field="published")
    served = await serve(engine)

    async def list_two(route: Any) -> None:
        entries = [{"name": "first", "title": "First", "default": True}, {"name": "second", "title": "Second"}]
        await route.fulfill(json={"indexes": entries})

    page = await visit(served.url)
    await page.route("**/ListIndexes", list_two)
    await page.reload()
    await page.locator("#filters summary").click()
    await page.get_by_label("published from").fill("2021-02-03")
    await page.get_by_label('a "b"').check()
    await page.get_by_label("<i>c</i>").check()
    await page.get_by_label("false").check()
    wanted = r'published >= 2021-02-03 and tags has any ("a \"b\"", "<i>c</i>") and draft = false'
    assert await page.locator("#filter").input_value() == wanted
    await page.get_by_label("As of").fill("2023-01-01")
    await ask(page)
    await page.get_by_text("100 tokens read").wait_for()
    assert (served.engine.queries[-1].filter, served.engine.queries[-1].as_of) == (wanted, "2023-01-01")
    assert await page.locator("#index option").all_inner_texts() == ["First", "Second"]
    assert await page.locator("#index").input_value() == "first"
    await page.locator("#views").get_by_role("link", name="Explore").click()
    await page.locator(".chip-link", has_text="Lighthouse").click()
    await page.locator("#walk-card .card-title").wait_for()
    assert engine.lookups[-1][2].filter == wanted
    await page.evaluate("location.hash = '#view=ask'")
    await page.wait_for_function("document.querySelector('#filter').value === ''")
    assert not await page.get_by_label("false").is_checked()
    await page.locator("#index").select_option("second")
    await page.locator("#trouble").get_by_text("there is no 'second' among those").wait_for()  # asked by its name
