"""The page in a real browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.errors import ModelUnavailable
from hirag_dist.types import (
    Answer,
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    PathItem,
    Retrieval,
    SourceItem,
    TripleItem,
)
from tests.service import fakes

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


def many_keys(whole: Any, n: int) -> Any:
    """A retrieval of n key entities, each third pair by way of a hub, each seventh unconnected."""
    keys = tuple(
        EntityItem(f"k{i}", f"Key {i} " + "long " * (i % 9), "concept", "…", i % 4, 1 / (i + 1)) for i in range(n)
    )
    paths = []
    for i, (one, other) in enumerate(pairwise(keys)):
        middle = (("hub", "The hub"),) if i % 3 == 0 else ()
        steps = ((one.entity_id, one.name), *middle, (other.entity_id, other.name)) if i % 7 else ()
        paths.append(
            PathItem(one.entity_id, other.entity_id, tuple(id for id, _ in steps), tuple(name for _, name in steps))
        )
    return replace(whole, key_entities=keys, paths=tuple(paths), triples=())


@pytest.mark.smoke
async def test_a_question_shows_its_levels_its_bridge_and_a_cited_answer(serve: Serve, visit: See) -> None:
    served = await serve()
    seen = await visit(served.url)
    page = seen.page
    await page.get_by_text("3 documents").wait_for()
    await seen.ask()
    answer = page.locator("#answer")
    await answer.get_by_text("The keeper lit it").wait_for()
    await answer.get_by_text("100 tokens read, 7 written").wait_for()
    assert (await page.locator("#local [data-item=e1]").inner_text()).split("\n")[0] == "L0"
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
    assert await seen.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_citation_opens_what_it_cites(serve: Serve, visit: See) -> None:
    cited = (Citation("S1", "chunk", "k1", "Log"), Citation("E1", "entity", "e1", "Lighthouse"))
    served = await serve(fakes.FakeEngine())
    served.engine.answer_stream = answering(served.engine, "It was the keeper [S1][E1].", cited)
    page = await (await visit(served.url)).ask()
    item = page.locator("#sources [data-item=k1]")
    assert not (await item.locator("p.body").is_visible())
    await page.locator("#answer .text .cite", has_text="S1").click()
    await item.locator("p.body").wait_for(state="visible")
    assert "The keeper lit the lamp." in (await item.inner_text())
    assert "10–42" in (await item.inner_text())
    assert (await page.evaluate("document.activeElement.closest('[data-item]').dataset.item")) == "k1"
    await page.keyboard.press("Enter")  # the focus is on its summary: it closes again
    await item.locator("p.body").wait_for(state="hidden")


def answering(engine: fakes.FakeEngine, text: str, citations: tuple[Citation, ...]) -> Any:
    async def answer_stream(query: Any, *, deadline_s: float | None = None) -> Any:
        yield engine.whole
        for word in text.split(" "):
            yield f"{word} "
        yield Answer(text, citations, 0, engine.whole, "scripted", 1, 1)

    return answer_stream


async def test_claims_are_listed_where_there_are_any(serve: Serve, visit: See) -> None:
    rest = ("e1", "", "debt", "suspected", "1843-12-24", "", "He owes\nMarley much.", "“He owes.”", "k1")
    told = ClaimItem("cl1", "Scrooge", "Marley", *rest)
    bare = ClaimItem("cl2", "Scrooge", "", "", "", "", "", "", "", "Nothing more is told.", "", "")
    whole = replace(fakes.WHOLE, claims=(told, bare), context_refs={"C1": "cl1"})
    served = await serve(fakes.FakeEngine(whole=whole))
    served.engine.answer_stream = answering(
        served.engine, "He owes [C1].", (Citation("C1", "claim", "cl1", "Scrooge"),)
    )
    seen = await visit(served.url, viewport={"width": 360, "height": 740})
    page = await seen.ask()
    section = page.locator("#claims")
    await section.locator("[data-item=cl1]").wait_for()
    assert "Scrooge → Marley" in await section.inner_text()
    assert (await section.locator(".number").inner_text()) == "2"
    assert not await section.locator("dl").first.is_visible()
    await page.locator("#answer .text .cite", has_text="C1").click()
    await section.locator("[data-item=cl1] dl").wait_for(state="visible")
    opened = await section.locator("[data-item=cl1]").inner_text()
    assert all(words in opened for words in ("suspected", "since 1843-12-24", "“He owes.”", "He owes\nMarley much."))
    assert (await section.locator("[data-item=cl2] dt").count()) == 0
    assert (await page.locator("#jump button", has_text="Claims").count()) == 1
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    served.engine.whole = fakes.WHOLE
    await seen.ask("And without?")
    await page.locator("#local [data-item=e1]").wait_for()
    assert await section.is_hidden()
    assert (await page.locator("#jump button", has_text="Claims").count()) == 0


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
    served.engine.answer_stream = answering(
        served.engine,
        f"{script} {image} **{svg}** `{address}`\n- {mixed} [S1]",
        (Citation("S1", "chunk", "k1", image),),
    )
    page = await (await visit(served.url)).ask(image)
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
    serve: Serve,
    visit: See,
    tmp_path: Path,
) -> None:
    served = await serve(callers_file=fakes.CallersFile(tmp_path / "callers.yaml").add("web").path)
    seen = await visit(served.url)
    page = seen.page
    await page.get_by_text("This service requires a token.").wait_for()
    await page.fill("#token", "wrong-token")
    await page.press("#token", "Enter")
    await page.get_by_role("alert").get_by_text("The service does not know this token").wait_for()
    assert (await page.locator("#access").get_attribute("open")) is not None
    await seen.ask()
    await page.get_by_role("alert").get_by_text("under Access, at the top").wait_for()
    await page.fill("#token", "web-token")
    await page.press("#token", "Enter")
    await page.get_by_text("3 documents").wait_for()
    assert not (await page.get_by_role("alert").is_visible())
    await seen.ask()
    await page.get_by_text("100 tokens read").wait_for()
    assert "token" not in page.url
    assert (await page.evaluate("localStorage.length + document.cookie.length")) == 0
    await page.reload()
    await page.get_by_text("3 documents").wait_for()  # the tab still has it
    await page.locator("#access summary").click()
    await page.locator("#forget").click()
    await page.get_by_text("This service requires a token.").wait_for()


async def test_a_hundred_keys_long_names_and_a_narrow_dark_screen(serve: Serve, visit: See) -> None:
    whole = many_keys(fakes.WHOLE, 100)
    word = "Donaudampfschifffahrtsgesellschaft" * 9
    local = (
        EntityItem("long", word, "organization", word, 3, 0.9),
        EntityItem("rtl", "مجلس القضاء الأعلى", "organization", "نص من اليمين إلى اليسار", 0, 0.8),
        EntityItem("cjk", "気候変動に関する政府間パネル", "organization", "第六次評価報告書。", 1, None),
    )
    served = await serve(fakes.FakeEngine(whole=replace(whole, local=local)))
    seen = await visit(served.url, viewport={"width": 360, "height": 740}, color_scheme="dark")
    page = await seen.ask()
    await page.get_by_text("100 tokens read").wait_for()
    assert (await page.evaluate("document.documentElement.scrollWidth")) == 360
    assert (await page.locator("#bridge svg .node").count()) == 101
    assert (await page.locator("#bridge svg .edge.missing").count()) == len(
        [p for p in whole.paths if not p.entity_ids]
    )
    assert (await page.locator("#bridge").get_by_text("Show all 100 key entities").count()) == 1
    await page.locator("#bridge").get_by_text("Show all 100 key entities").click()
    assert (await page.locator("#bridge [data-item]:visible").count()) == 100
    await page.locator("#bridge").get_by_role("button", name="The next pair").click()
    assert "lie in parts of the graph that nothing connects" in (await page.locator("#bridge .said").inner_text())
    dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert dark == "rgb(18, 20, 25)"
    inside = await page.evaluate(
        """() => { const box = document.querySelector("svg.graph").getBoundingClientRect();
        return [...document.querySelectorAll("svg.graph circle")].every((one) => {
          const { left, right, top, bottom } = one.getBoundingClientRect();
          return left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom; }); }"""
    )
    assert inside
    assert (await page.evaluate("getComputedStyle(document.querySelector('[data-item=rtl] b')).direction")) == "rtl"


async def test_a_deadline_and_a_model_that_is_out_leave_what_was_found(serve: Serve, visit: See) -> None:
    served = await serve(fakes.FakeEngine(whole=replace(fakes.WHOLE, partial=("bridge", "sources"))))
    seen = await visit(served.url)
    await seen.ask()
    await seen.page.locator("#partial").get_by_text("cut off bridge, sources").wait_for()
    served.engine.error = ModelUnavailable("the model at example.org does not answer")
    page = await seen.ask()
    await page.get_by_role("alert").get_by_text("The language model does not answer").wait_for()
    await page.get_by_role("alert").get_by_text("the model at example.org does not answer").wait_for()
    assert "Lighthouse" in (await page.locator("#local").inner_text())
    served.engine.error = None
    await page.get_by_role("button", name="Ask again").click()
    await page.get_by_text("100 tokens read").wait_for()
    assert not (await page.get_by_role("alert").is_visible())


async def test_levels_come_one_by_one_and_asking_can_be_stopped(serve: Serve, visit: See) -> None:
    served = await serve()
    served.engine.gate = asyncio.Event()
    seen = await visit(served.url)
    page = seen.page
    await page.uncheck("#want-answer")
    await page.locator("#options summary").click()
    await page.select_option("#mode", "hirag")
    await page.fill("#top-n", "7")
    await page.fill("#labels", "lang:de, team:legal")
    await seen.ask()
    await page.locator("#local [data-item=e1]").wait_for()  # while the engine still waits
    assert (await page.locator("#bridge").inner_text()) == ""
    assert await page.locator("#answer").is_hidden()
    await page.locator("#stop").click()
    await page.get_by_role("status").get_by_text("Stopped.").wait_for(state="attached")
    asked = served.engine.queries[-1]
    assert (asked.mode, asked.top_n, asked.labels) == ("hirag", 7, ("lang:de", "team:legal"))
    served.engine.gate.set()
    await seen.ask()
    await page.locator("#bridge svg").wait_for()
    await page.get_by_role("status").get_by_text("The result is complete.").wait_for(state="attached")


async def test_nothing_found(serve: Serve, visit: See) -> None:
    served = await serve(fakes.FakeEngine(whole=Retrieval(question="q", mode="naive", snapshot_id="s1")))
    served.engine.answer_stream = answering(served.engine, "I do not know.", ())
    page = await (await visit(served.url)).ask()
    await page.get_by_text("Nothing in the index fits well enough").wait_for()
    assert "This mode does not look for entities." in (await page.locator("#local").inner_text())
    assert "This mode does not look for paths." in (await page.locator("#bridge").inner_text())
    assert "No passage was found." in (await page.locator("#sources").inner_text())


async def test_the_whole_of_it_by_keyboard(serve: Serve, visit: See) -> None:
    page = (await visit((await serve()).url)).page
    await page.keyboard.press("Tab")
    assert (await page.evaluate("document.activeElement.className")) == "skip"
    await page.keyboard.press("Enter")
    await page.keyboard.type("Who lit the lamp?")
    await page.keyboard.press("Enter")
    await page.get_by_text("100 tokens read").wait_for()
    await page.locator("#jump button", has_text="Bridge").focus()
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_texts_stand_out_from_their_ground(serve: Serve, visit: See, scheme: str) -> None:
    seen = await visit((await serve()).url, color_scheme=scheme)
    page = await seen.ask()
    await page.get_by_text("100 tokens read").wait_for()
    colours = await page.evaluate(
        """() => { const style = getComputedStyle(document.documentElement);
        return Object.fromEntries(
          ["ink", "soft", "accent", "bad", "warn", "good", "card", "well", "accent-soft", "mark"].map((name) =>
            [name, style.getPropertyValue(`--${name}`).trim()])); }"""
    )
    for ink, ground in (
        *((ink, "card") for ink in ("ink", "soft", "accent", "bad", "warn", "good")),
        ("soft", "well"),
        ("accent", "well"),
        ("ink", "mark"),
        ("ink", "accent-soft"),
        ("accent", "accent-soft"),
    ):
        assert contrast(colours[ink], colours[ground]) >= 4.5, (scheme, ink, ground)  # WCAG AA


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
