"""The page in a real browser: nothing of the layers is cut on a narrow screen, and no card has an empty part."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.inspection.test_page import page_of
from tests.service.web.conftest import browser

__all__ = ["browser"]

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

CUT = "[...document.querySelectorAll('.grid > .card:first-child .scroll')].map(it => it.scrollWidth - it.clientWidth)"
EMPTY = """[...document.querySelectorAll('.grid > .card')].map(card =>
    card.getBoundingClientRect().bottom - card.lastElementChild.getBoundingClientRect().bottom)"""


async def test_tables_fit_a_narrow_screen_and_cards_their_content(browser: Any, generated: dict[str, pa.Table]) -> None:
    page = await browser.new_page(viewport={"width": 420, "height": 900})
    await page.set_content(page_of(generated))
    cut = await page.evaluate(CUT)
    assert cut
    assert max(cut) <= 0
    await page.set_viewport_size({"width": 1000, "height": 900})
    assert max(await page.evaluate(EMPTY)) < 30  # pixels: padding and margin
    await page.close()
