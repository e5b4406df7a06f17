"""A service with a scripted engine, the page in front of it, and a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from hirag_dist.service.options import PageOptions
from hirag_dist.service.web.run import Page
from tests.service import fakes
from tests.service.fixtures import certificates

__all__ = ["certificates"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Served:
    """A page that is served, and the engine behind it."""

    url: str
    engine: fakes.FakeEngine
    page: Page


async def _serve(
    stack: AsyncExitStack, engine: fakes.FakeEngine | None = None, page: dict[str, Any] | None = None, **options: Any
) -> Served:
    engine = fakes.FakeEngine() if engine is None else engine
    services = fakes.Services()
    stack.push_async_callback(services.stop)
    address = (await services.start(engine, **options)).address
    chosen = PageOptions(**({"listen": "127.0.0.1:0"} | (page or {})))
    served = await stack.enter_async_context(Page(chosen, address))
    return Served(served.url, engine, served)


@pytest_asyncio.fixture(loop_scope="module")
async def serve() -> AsyncIterator[Callable[..., Awaitable[Served]]]:
    """Starts a service around an engine, and a page with the options `page`; other keywords are `ServerOptions`."""
    async with AsyncExitStack() as stack:
        yield partial(_serve, stack)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        yield await _serve(stack)


@pytest.fixture
def served(shared: Served) -> Served:
    """A service with the usual options that the tests of a file share; its engine is as it was at first."""
    vars(shared.engine).clear()
    shared.engine.__init__()  # type: ignore[misc]
    return shared


@pytest_asyncio.fixture(loop_scope="module")
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """A headless Chromium. Where there is none the test is skipped, in CI it fails: tools/browser.sh installs it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        missing: str | None = "playwright is not installed: make dev-env"
    else:
        missing = None if path else "no Chromium: run tools/browser.sh"
    if missing:
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    async with async_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has no sandbox
        launched = await playwright.chromium.launch(executable_path=path, args=sandbox)
        yield launched
        await launched.close()


@dataclass
class Visit:
    """A page in a tab of its own, with what went wrong in it."""

    page: Any
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(20_000)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("dialog", lambda dialog: self.faults.append(f"dialog {dialog.message}"))

    def _heard(self, message: Any) -> None:
        if message.type == "error" and "the server responded with a status of" not in message.text:
            self.faults.append(message.text)

    async def ask(self, question: str = "Who lit the lamp?") -> Any:
        await self.page.fill("#question", question)
        await self.page.press("#question", "Enter")
        return self.page


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Any) -> AsyncIterator[Callable[..., Awaitable[Visit]]]:
    """Opens a page, keywords as for a browser's context; at the end, nothing may have gone wrong in any."""
    visits: list[Visit] = []

    async def visit(url: str, **options: Any) -> Visit:
        context = await browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        visits.append(Visit(await context.new_page()))
        await visits[-1].page.goto(url)
        return visits[-1]

    yield visit
    for one in visits:
        await one.page.context.close()
        assert not one.faults, one.faults
