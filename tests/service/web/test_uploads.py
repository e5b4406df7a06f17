"""Uploads over HTTP: who may, what is refused, the plan, the update in a process of its own, and the page."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from hirag_dist.service.web.options import UploadOptions

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.integration]

# The process: a plan at once; an update that reports, and ends when the folder has a file "go.md", or is cancelled.
PROCESS = """
import json, os, sys, threading
task = json.loads(sys.stdin.readline())
threading.Thread(target=lambda: (os.read(0, 1), os._exit(130)), daemon=True).start()
say = lambda message: print(json.dumps(message), flush=True)
names = sorted(os.listdir(task["folder"]))
documents = {"added": len(names), "changed": 0, "removed": 0}
if task["action"] == "plan":
    if "slow.md" in names:
        threading.Event().wait()
    cost = {"calls": 4, "input_tokens": 900, "output_tokens": 90, "cost_usd": 0.5}
    stage, sums = {"stage": "extract", "endpoint": "main"} | cost, cost | {"chunks": 4, "tokens": 800}
    seen = {"unreadable": [], "unreadable_count": 0, "refused": "", "documents_after": 9, "documents": documents}
    say({"plan": {"stages": [stage]} | sums | seen})
elif "busy.md" in names:
    say({"failed": "another build holds the index"})
    sys.exit(5)
else:
    say({"progress": {"stage": "extract", "units": 4, "units_done": 1, "calls": 1, "tokens": 200, "usd": 0.1}})
    if "go.md" not in names:
        threading.Event().wait()
    run = {"calls": 4, "tokens": 990, "usd": 0.4}
    say({"result": {"snapshot": "toy", "complete": True, "seconds": 1.0, "dead_letters": 0, "up_to_date": False,
                    "update": {"documents": documents}, "this_run": run, "max_usd": task["max_usd"]}})
"""

Post = Callable[..., Awaitable[tuple[int, dict[str, Any]]]]


def options(folder: Path, **more: Any) -> UploadOptions:
    index = more.pop("index", str(folder / "index"))
    return UploadOptions(
        str(folder / "uploads"), index, (sys.executable, "-c", PROCESS), "{}", **({"anonymous": None} | more)
    )


def files(folder: Path) -> list[str]:
    """Return all files below a folder, without the lock."""
    found = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return sorted(path.as_posix() for path in found)


@pytest_asyncio.fixture(loop_scope="module")
async def post(serve: Callable[..., Any], http: Any, tmp_path: Path) -> AsyncIterator[Post]:
    """Posts to the page of a service with uploads; the first call starts it with the options `uploads`."""
    urls: list[str] = []

    async def post(
        step: str, body: Any = None, *, headers: Mapping[str, str] | None = None, uploads: Any = None, page: Any = None
    ) -> tuple[int, dict[str, Any]]:
        if not urls:
            chosen = {"uploads": options(tmp_path, **(uploads or {}))} | (page or {})
            urls.append((await serve(page=chosen)).url)
        kind = "application/octet-stream" if step == "file" else "application/json"
        sent = {"Content-Type": kind} | dict(headers or {})
        data = body if isinstance(body, bytes) else None
        json = None if isinstance(body, bytes) else (body or {})
        async with http.post(f"{urls[0]}api/upload/{step}", data=data, json=json, headers=sent) as response:
            return response.status, await response.json()

    yield post


async def sent(post: Post, name: str, body: bytes = b"A text.") -> tuple[int, dict[str, Any]]:
    return await post("file", body, headers={"X-File-Name": name})


async def until(post: Post, *states: str) -> dict[str, Any]:
    """Ask for the state until it is one of these; the time limit is the test's."""
    while True:
        _, status = await post("state")
        if status["state"] in states:
            return status
        assert status["state"] in ("planning", "running"), status


async def test_files_are_planned_confirmed_and_added(post: Post, tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    assert (await post("state"))[1]["state"] == "empty"
    await sent(post, "go.md")
    status, after = await sent(post, "Stra%C3%9Fe.txt", b"Two texts.")
    assert status == 200
    assert after["files"] == [{"name": "go.md", "bytes": 7}, {"name": "Straße.txt", "bytes": 10}]
    assert [name.split("/")[0] for name in files(uploads)] == [".staging"] * 2
    await post("plan")
    planned = await until(post, "planned")
    assert planned["plan"]["documents"]["added"] == 2
    status, refused = await post("start", {"plan_id": "another"})
    assert (status, refused["error"]["kind"]) == (409, "UploadConflict")
    status, _ = await post("start", {"plan_id": planned["plan_id"], "max_usd": 2})
    assert status == 200
    done = await until(post, "done")
    assert done["result"]["max_usd"] == 2
    assert done["progress"]["calls"] == 1
    kept = files(uploads)
    assert [name.split("/")[1] for name in kept] == ["Straße.txt", "go.md"]
    assert not kept[0].startswith(".")
    assert (await post("plan"))[0] == 409
    # another version of a file: that of the earlier upload is replaced, once the index has the new one
    await sent(post, "go.md", b"Another text.")
    await post("plan")
    plan_id = (await until(post, "planned"))["plan_id"]
    await post("start", {"plan_id": plan_id})
    await until(post, "done")
    assert {name.split("/")[1] for name in files(uploads)} == {"go.md", "Straße.txt"}
    assert len({name.split("/")[0] for name in files(uploads)}) == 2
    await post("discard")
    assert len(files(uploads)) == 2  # documents of the index stay
    assert (await post("state"))[1]["state"] == "empty"


async def test_an_update_is_cancelled_and_goes_on(post: Post, tmp_path: Path) -> None:
    await sent(post, "slow.md")
    await post("plan")
    assert (await sent(post, "go.md"))[0] == 409
    await post("cancel")
    await until(post, "cancelled")
    await post("discard")
    assert files(tmp_path / "uploads") == []
    await sent(post, "a.md")
    await post("plan")
    await post("start", {"plan_id": (await until(post, "planned"))["plan_id"]})
    while not (await until(post, "running"))["progress"]:
        pass
    assert (await post("discard"))[0] == 409
    await post("cancel")
    assert (await until(post, "cancelled"))["error"] == ""
    await sent(post, "go.md")
    await post("plan")
    await post("start", {"plan_id": (await until(post, "planned"))["plan_id"]})
    assert (await until(post, "done"))["result"]["update"]["documents"]["added"] == 2


async def test_names_types_and_sizes(post: Post, tmp_path: Path) -> None:
    assert (await post("state", uploads={"max_bytes": 100, "max_file_bytes": 60, "max_files": 3}))[0] == 200
    hostile = ("..%2F..%2Fa.md", "%2Fetc%2Fb.md", "c:%5Cwindows%5C%00c.md", "%2E%2Ea.md")
    for name in hostile:
        assert (await sent(post, name))[0] == 200, name
    names = [one["name"] for one in (await post("state"))[1]["files"]]
    assert names == ["a.md", "b.md", "c.md"]  # the fourth is the first one again
    assert {path.split("/")[0] for path in files(tmp_path)} == {"uploads"}
    for name, body, why in (
        ("d.md", b"x", "at most 3 files"),
        ("a.md", b"x" * 61, "larger than the 60 bytes"),
        ("run.exe", b"x", "files of type .exe cannot be read"),
        ("..", b"x", "no name of a file"),
        ("", b"x", "X-File-Name"),
    ):
        status, refused = await sent(post, name, body)
        assert (status, why in refused["error"]["message"]) == (400, True), refused
    assert (await sent(post, "a.md", b"x" * 60))[0] == 200
    assert (await sent(post, "b.md", b"x" * 34))[0] == 400  # more than the upload may have
    assert len(files(tmp_path / "uploads")) == 3  # nothing is left of what was refused
    assert (await post("plan"))[0] == 200
    assert (await post("cancel"))[0] == 200


async def test_other_sites_cannot_upload(post: Post) -> None:
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/json"}, 415),
        ({"Host": "evil.example"}, 421),
    ):
        assert (await post("file", b"x", headers={"X-File-Name": "a.md"} | headers))[0] == status
    assert (await post("plan", b"{}", headers={"Content-Type": "application/octet-stream"}))[0] == 415
    assert (await post("state"))[1]["state"] == "empty"


async def test_only_operators_of_the_callers_file(post: Post, tmp_path: Path) -> None:
    def caller(token: str, **more: Any) -> dict[str, Any]:
        return {"tokens": [{"sha256": sha256(token.encode()).hexdigest()}]} | more

    callers = {
        "operator": caller("good", labels="all", uploads=True),
        "reader": caller("read", labels="all"),
        "partial": caller("part", labels=["public"], uploads=True),
    }
    path = tmp_path / "callers.yaml"
    path.write_text(yaml.safe_dump({"callers": callers}), "utf-8")
    given = {"uploads": {"callers_file": str(path)}, "page": {"callers": True}}
    for token, status, why in (
        ("", 401, "bearer token"),
        ("wrong", 401, "bearer token"),
        ("read", 403, "uploads: true"),
        ("part", 403, "labels may hide documents"),
        ("good", 200, ""),
    ):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        for step in ("state", "file", "discard"):
            more = {"X-File-Name": "a.md"} if step == "file" else {}
            answer = await post(step, b"x" if step == "file" else None, headers=headers | more, **given)
            assert answer[0] == status
            assert why in answer[1].get("error", {"message": ""})["message"] if why else True
    del callers["operator"]
    path.write_text(yaml.safe_dump({"callers": callers}), "utf-8")
    assert (await post("state", headers={"Authorization": "Bearer good"}))[0] == 401  # revoked at once


async def test_uploads_are_off_by_default(serve: Callable[..., Any], http: Any) -> None:
    url = (await serve()).url
    async with http.post(f"{url}api/upload/state", json={}) as response:
        assert response.status == 404
    async with http.post(f"{url}api/describe", json={}) as response:
        assert (await response.json())["uploads"] is False


@pytest.mark.browser
async def test_a_visitor_adds_documents(serve: Callable[..., Any], visit: Callable[..., Any], tmp_path: Path) -> None:
    served = await serve(page={"uploads": options(tmp_path)})
    page = (await visit(served.url)).page
    await page.click("#upload-tab")
    hostile = {"name": "<img src=x>.md", "mimeType": "text/markdown", "buffer": b"# A text"}
    await page.set_input_files("#upload-files", [hostile, hostile | {"name": "go.md"}])
    await page.locator(".plan").wait_for()
    assert "2 documents added, 0 replaced" in await page.locator("#upload-state").inner_text()
    assert "$0.50" in await page.locator(".plan tr").last.inner_text()
    await page.set_viewport_size({"width": 375, "height": 800})  # the row of headings is hidden: each figure is named
    name = "getComputedStyle(document.querySelector('.plan tr:last-child td:last-child'), '::before').content"
    assert "cost" in await page.evaluate(name)
    await page.fill("#upload-usd", "1.5")
    await page.click("#upload-state button.primary")
    await page.locator("#upload-result").wait_for()
    shown = await page.locator("#upload-state").inner_text()
    assert "2 documents added" in shown
    assert "4 calls, 990 tokens, $0.40" in shown
    assert await page.locator("#upload-state img").count() == 0
    assert "go.md" in {Path(name).name for name in files(tmp_path / "uploads")}
