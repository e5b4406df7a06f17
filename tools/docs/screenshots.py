"""Screenshots of the web page for the documentation: a service of the sample corpus, and a Chromium that visits it."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
QUESTION = "What did the expedition of Lewis and Clarke explore?"
FOLLOW_UP = "And what did it say of the Pacific Ocean?"
DESKTOP = {"viewport": {"width": 1280, "height": 860}, "device_scale_factor": 1}
PHONE = {
    "viewport": {"width": 390, "height": 844},
    "device_scale_factor": 1,
    "has_touch": True,
    "is_mobile": True,
    "color_scheme": "dark",
}
REPLIES = ROOT / "hirag_dist" / "samples" / "replies.jsonl"
CONFIG = rf"""
execution: {{executor: inline}}
llm:
  endpoints:
    recording: {{kind: recorded, path: {REPLIES}, fallback: builtin}}
    builtin-embedder: {{kind: hashing}}
  roles: {{extract: recording, summarise: recording, report: recording, answer: recording}}
metadata:
  as_of_field: published
  fields:
    author: {{type: string, path: '(?:^|/)([a-z]+)-'}}
    published: {{type: date, path: '-(1[78]\d\d)-'}}
"""
READY_S = 60.0
QUALITY = 78  # of WebP
MAX_BYTES = 150_000  # of a picture


def write() -> int:
    """Write the pictures into docs/assets and return the exit code."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("docs: no Chromium: run tools/browser.sh", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder:
        index = f"{folder}/index"
        _build(index)
        with _served(index) as url:
            pictures = asyncio.run(_visit(browser, url, Path(index, "index.html").as_uri()))
    for name, picture in pictures.items():
        (ASSETS / f"{name}.webp").write_bytes(picture)
        print(f"docs/assets/{name}.webp: {len(picture) / 1000:.0f} kB")
    large = [name for name, picture in pictures.items() if len(picture) > MAX_BYTES]
    if large:
        print(f"docs: over {MAX_BYTES / 1000:.0f} kB: {', '.join(large)}", file=sys.stderr)
    return bool(large)


def _build(index: str) -> None:
    """Index the sample corpus with the recorded replies and two metadata fields, and write its inspection page."""
    Path(index).mkdir()
    Path(index, "hirag.yaml").write_text(CONFIG, encoding="utf-8")
    corpus = str(ROOT / "hirag_dist" / "samples" / "corpus")
    for command in (
        ["index", corpus, "--index", index, "--config", f"{index}/hirag.yaml"],
        ["inspect", "--index", index, "--html", f"{index}/index.html"],
    ):
        subprocess.run([sys.executable, "-m", "hirag_dist", *command], check=True, stdout=subprocess.DEVNULL)


@contextmanager
def _served(index: str) -> Iterator[str]:
    """Serve an index and yield the address of its web page."""
    listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    command = [sys.executable, "-m", "hirag_dist", "serve", "--index", index, *listen]
    log = Path(index, "screenshots.log")
    with log.open("wb") as out:
        environment = os.environ | {"COLUMNS": "200"}
        service = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
    try:
        give_up_at = time.monotonic() + READY_S
        while not (found := re.search(r"Browser page: (\S+)", log.read_text(encoding="utf-8", errors="replace"))):
            if time.monotonic() > give_up_at or service.poll() is not None:
                raise SystemExit(f"docs: the service did not start:\n{log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        yield found[1]
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(timeout=30)


async def _visit(browser: str, url: str, inspection: str) -> dict[str, bytes]:
    """Return the pictures by name."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        sandbox = [] if os.getuid() else ["--no-sandbox"]  # root has no sandbox
        chromium = await playwright.chromium.launch(executable_path=browser, args=sandbox)
        desktop = await _page(chromium, DESKTOP)
        phone = await _page(chromium, PHONE)
        pictures = {
            **await _answer(desktop, url),
            **await _filter(desktop, url),
            **await _walk(desktop, url),
            **await _inspect(desktop, inspection),
            **await _on_a_phone(phone, url),
        }
        await chromium.close()
    return pictures


async def _page(chromium: Any, options: dict[str, Any]) -> Any:
    context = await chromium.new_context(reduced_motion="reduce", **options)
    return await context.new_page()


async def _picture(page: Any) -> bytes:
    """Return the part of the page in view as WebP, which Playwright itself cannot write."""
    await page.evaluate("document.fonts.ready")
    session = await page.context.new_cdp_session(page)
    found = await session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    return base64.b64decode(found["data"])


async def _ask(page: Any, question: str) -> None:
    await page.fill("#question", question)
    await page.press("#question", "Enter")
    await page.locator("#status").get_by_text("The answer is complete.").wait_for(state="attached")
    await page.locator("#asked h2", has_text=question).wait_for()


async def _answer(page: Any, url: str) -> dict[str, bytes]:
    """Question, answer and sources; the bridge; a document."""
    await page.goto(url)
    await _ask(page, QUESTION)
    shown = {"page-answer": await _picture(page)}
    await page.locator("#jump button", has_text="Bridge").click()
    await page.locator("#bridge .pairs button").nth(1).click()
    shown["page-bridge"] = await _picture(page)
    await page.locator("#answer .text .cite", has_text="S").first.click()
    await page.locator("#sources details[open] .act", has_text="Open the document").click()
    await page.locator("#reader-note").get_by_text("Characters").wait_for()
    shown["page-document"] = await _picture(page)
    await page.keyboard.press("Escape")
    await _ask(page, FOLLOW_UP)
    await page.evaluate("scrollTo(0, 0)")
    return shown | {"page-follow-up": await _picture(page)}


async def _filter(page: Any, url: str) -> dict[str, bytes]:
    """A question to some of the documents."""
    await page.goto(url)
    await page.locator("#filters summary").click()
    await page.get_by_label("jefferson").check()
    await page.get_by_label("published from").fill("1804-01-01")
    await _ask(page, QUESTION)
    await page.evaluate("scrollTo(0, 0)")
    shown = {"page-filters": await _picture(page)}
    await page.goto("about:blank")  # the next picture begins without filters
    return shown


async def _walk(page: Any, url: str) -> dict[str, bytes]:
    """The graph around an entity, and a path."""
    await page.goto(f"{url}#view=explore")
    await page.fill("#find-name", "Thomas Jefferson")
    await page.press("#find-name", "Enter")
    title = page.locator("#walk-card .card-title")
    await title.get_by_text("Thomas Jefferson").wait_for()
    await page.locator("#walk-card .row-link", has=page.locator(".l1")).first.click()
    await page.locator("#walk-card .acts button", has_text="+ members").click()
    await page.locator("#status").get_by_text("added").wait_for(state="attached")
    shown = {"page-walk": await _picture(page)}
    await page.locator("#walk-clear").click()
    await page.fill("#find-name", "Thomas Jefferson")
    await page.press("#find-name", "Enter")
    await page.locator("#walk-card .acts button", has_text="Path from here").click()
    await page.fill("#path-to", "Sherlock Holmes")
    await page.press("#path-to", "Enter")
    await title.get_by_text("→").wait_for()
    return shown | {"page-path": await _picture(page)}


async def _inspect(page: Any, inspection: str) -> dict[str, bytes]:
    """The inspection page, at a summary entity."""
    await page.goto(f"{inspection}#q=Missouri")
    await page.locator("#panel .passage").first.click()
    await page.locator("#panel mark").wait_for()
    return {"inspection": await _picture(page)}


async def _on_a_phone(page: Any, url: str) -> dict[str, bytes]:
    """The answer and the walk on a narrow, dark screen."""
    await page.goto(url)
    await _ask(page, QUESTION)
    await page.evaluate("scrollTo(0, 0)")
    shown = {"page-phone": await _picture(page)}
    await page.locator("#local details summary").first.click()
    await page.locator("#local .act").first.click()
    await page.locator("#walk-card .card-title").wait_for()
    await page.locator("#walk-canvas .node circle").last.tap()
    await page.locator("#walk-canvas .node.selected").wait_for()
    return shown | {"page-phone-walk": await _picture(page)}
