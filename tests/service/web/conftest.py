"""A service with a scripted engine, the page in front of it, and a real browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio

from tests.service import fakes
from tests.service.fixtures import certificates

__all__ = ["certificates"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest_asyncio.fixture(loop_scope="module")
async def serve() -> AsyncIterator[fakes.Start]:
    """Starts a service with an HTTP server, around an engine of its own if none is given."""
    services = fakes.Services()

    async def serve(engine: fakes.FakeEngine | None = None, **options: Any) -> fakes.Service:
        return await services.start(engine or fakes.FakeEngine(), **{"page": {}} | options)

    yield serve
    await services.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[fakes.Service]:
    services = fakes.Services()
    yield await services.start(fakes.FakeEngine(), page={})
    await services.stop()


@pytest.fixture
def served(shared: fakes.Service) -> fakes.Service:
    """A service with the usual options that the tests of a file share; its engine is as it was at first."""
    vars(shared.engine).clear()
    shared.engine.__init__()  # type: ignore[misc]
    return shared


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Any]:
    """A headless Chromium. Where there is none the test is skipped, in CI it fails: tools/browser.sh installs it."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        path = None
    if path is None:
        missing = "no Playwright or no Chromium: run make dev-env and tools/browser.sh"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    async with async_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has no sandbox
        launched = await playwright.chromium.launch(executable_path=path, args=sandbox)
        yield launched
        await launched.close()


@pytest_asyncio.fixture(loop_scope="module")
async def visit(browser: Any) -> AsyncIterator[Callable[..., Awaitable[Any]]]:
    """Opens a page in a tab of its own, keywords as for a browser's context; nothing may go wrong in any."""
    contexts: list[Any] = []
    faults: list[str] = []

    def heard(message: Any) -> None:
        if message.type == "error" and "the server responded with a status of" not in message.text:
            faults.append(message.text)

    async def visit(url: str, **options: Any) -> Any:
        contexts.append(await browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options)))
        page = await contexts[-1].new_page()
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", heard)
        page.on("dialog", lambda dialog: faults.append(f"dialog {dialog.message}"))
        await page.goto(url)
        return page

    yield visit
    for context in contexts:
        await context.close()
    assert not faults
