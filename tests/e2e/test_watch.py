"""`hirag-dist watch` as a process: it follows a folder, and may be killed in the middle of an update."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hirag_dist.composition.build_records import last_build
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store

TEXT = "Aloysius Pemberley measured the white light of a lamp with a prism at Trinity College in the year 1701. "


def until(check: Callable[[], Any], process: subprocess.Popen[str], timeout_s: float = 120.0) -> Any:
    """Return the first true value of a check."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if found := check():
            return found
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    raise AssertionError("the watch did not get there in time")


def test_a_folder_is_followed_and_a_killed_update_continued(cli: Any, built: Any, tmp_path: Path) -> None:
    index = Path(shutil.copytree(built.folder, tmp_path / "index"))
    corpus = Path(shutil.copytree(built.corpus, tmp_path / "corpus"))
    store = Store(str(index))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ("-i", index, "-c", built.config, "--executor", "inline")
    command = ("watch", corpus, *options, "--every", "0s", "--poll", "0.1s", "--metrics", f"127.0.0.1:{port}", "--json")
    log = tmp_path / "log"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text().splitlines()]

    with log.open("w") as stdout:
        watch = cli.start(*command, stdout=stdout)
        until(events, watch)
        assert events()[0]["snapshot"] == built.snapshot
        (corpus / "pemberley.md").write_text(TEXT)
        until(lambda: (last_build(store) or {})["state"] == "running" and last_build(store)["stages"], watch)  # type: ignore[index]
        watch.send_signal(signal.SIGKILL)
        watch.communicate()
    assert current_id(store) == built.snapshot
    with log.open("w") as stdout:
        watch = cli.start(*command, stdout=stdout)
        until(lambda: current_id(store) != built.snapshot, watch)
        (event,) = until(events, watch)
        assert (event["event"], event["documents"]) == ("updated", 5)
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert "hirag_watch_updates_total 1.0" in metrics
        assert "hirag_watch_documents 5.0" in metrics
        watch.send_signal(signal.SIGTERM)
        said = watch.communicate(timeout=60)[1]
    assert watch.returncode == 0
    assert "The watch has ended" in said
    uris = open_snapshot(store).table("documents", ["uri"])["uri"].to_pylist()
    assert "pemberley.md" in uris
    whole = Path(shutil.copytree(built.folder, tmp_path / "whole"))
    assert cli.json("index", corpus, "-i", whole, *options[2:])["snapshot"] == current_id(store)
