"""The page over an index whose every word is an attack: built, published, served, asked, looked at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.citations import unmarked
from hirag_dist.service.hot_swap import SnapshotSwapper
from tests.toy_builds import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")  # that of the browser

WORDS = (  # a word is an entity
    "<script>window.harmed=1</script>",
    '"><img/src=x/onerror=window.harmed=2>',
    "javascript:window.harmed=3",
    "<svg/onload=window.harmed=4>",
    "</textarea><iframe/src=javascript:window.harmed=5>",
    "lamp",
)


async def test_an_index_of_attacks(serve: Callable[..., Any], visit: Callable[..., Any], tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    snapshot = await asyncio.to_thread(bench.build, [" ".join(WORDS), " ".join(reversed(WORDS))], max_layers=0)
    embedder = {"endpoints": {"words": {"kind": "hashing", "dim": 32}}, "roles": {"embed": "words"}}
    config = Config.model_validate({"vectors": {"backend": "memory"}, "llm": embedder})

    async def opened() -> Any:
        return make_engine(config, snapshot, Prompts())

    served = await serve(SnapshotSwapper(opened, lambda: "built", poll_s=3600))
    page = await (await visit(served.url)).ask(f"What of {WORDS[0]} and the lamp?")
    await page.locator("#answer .soft:not(.waiting)").first.wait_for()
    await page.evaluate("document.querySelectorAll('#result details').forEach((one) => { one.open = true; })")
    local = await page.locator("#local").inner_text()
    names = [word for word in WORDS if unmarked(word) == word]  # prompts take tags apart, and so do names
    assert len(names) > 2
    assert all(word.casefold() in local.casefold() for word in names)
    assert WORDS[0] in await page.locator("#sources").inner_text()
    assert await page.locator("#bridge svg .node").count() >= 2
    assert await page.locator("#bridge svg .edge").count() >= 1
    await page.locator("#bridge svg .node").first.hover()
    await page.locator("#hint").wait_for()
    assert await page.evaluate("window.harmed") is None
    assert await page.locator("#result :is(script, img, iframe, textarea)").count() == 0
    cited = page.locator("#answer .text .cite")
    assert await cited.count() >= 1
    await cited.first.click()
    assert await page.evaluate("document.activeElement.closest('[data-item]') !== null")
    await page.evaluate("location.hash = document.querySelector('#local a.act').getAttribute('href')")
    await page.locator("#walk-card .card-title").wait_for()
    await page.evaluate("document.querySelectorAll('#walk-card details').forEach((one) => { one.open = true; })")
    await page.locator("#walk-card .act", has_text="Open the document").first.click()
    await page.locator("#reader-note").get_by_text("Characters").wait_for()
    assert WORDS[0] in await page.locator("#reader-text").inner_text()
    assert await page.locator("#reader-text .cited-passage").count() == 1
    assert await page.evaluate("window.harmed") is None
    assert await page.locator("main :is(script, img, iframe), dialog :is(script, img, iframe)").count() == 0
