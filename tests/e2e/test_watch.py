"""`hirag-dist watch` as a process: it follows a folder, and may be killed in the middle of an update."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.testing.simulator import SimulatorOptions
from tests.e2e.conftest import chat_calls, paid_endpoint, until
from tests.simulator_thread import SimulatorThread

TEXT = "Aloysius Pemberley measured the white light of a lamp with a prism at Trinity College in the year 1701. "


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_folder_is_followed_and_a_killed_update_continued(
    cli: Any, forked: Any, corpus: Path, make_config: Callable[..., Path], tmp_path: Path
) -> None:
    """The endpoint is slow while the first watch runs, so that the kill is certain to come before the update's end."""
    corpus, index = Path(shutil.copytree(corpus, tmp_path / "corpus")), tmp_path / "index"
    address = f"127.0.0.1:{free_port()}"
    endpoint = SimulatorThread(SimulatorOptions(listen=address))
    with endpoint as url:
        config = make_config(llm=paid_endpoint(url))
        built = forked.run(inputs=[str(corpus)], config=yaml.safe_load(config.read_text("utf-8")), index=index)
    base, whole = built["snapshot"], shutil.copytree(index, tmp_path / "whole")
    store, port = Store(str(index)), free_port()
    options = ("-i", index, "-c", config, "--executor", "inline")
    command = ("watch", corpus, *options, "--every", "0.1s", "--metrics", f"127.0.0.1:{port}", "--json")
    log = tmp_path / "log"

    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in log.read_text().splitlines()]

    endpoint = SimulatorThread(SimulatorOptions(listen=address, latency_ms=2_000.0))
    with endpoint, log.open("w") as stdout:
        watch = cli.start(*command, stdout=stdout)
        try:
            until(events, watch)
            assert events()[0]["snapshot"] == base
            (corpus / "pemberley.md").write_text(TEXT)
            until(lambda: chat_calls(endpoint), watch)
        finally:
            watch.send_signal(signal.SIGKILL)
            watch.communicate()
    assert current_id(store) == base
    with SimulatorThread(SimulatorOptions(listen=address)):
        with log.open("w") as stdout:
            watch = cli.start(*command, stdout=stdout)
            try:
                until(lambda: current_id(store) != base, watch)
                (event,) = until(events, watch)
                assert (event["update"]["documents"]["added"], event["counts"]["documents"]) == (1, 5)
                metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
                assert "hirag_watch_updates_total 1.0" in metrics
            finally:
                watch.send_signal(signal.SIGTERM)
                said = watch.communicate(timeout=60)[1]
        assert watch.returncode == 0
        assert "The watch has ended" in said
        uris = open_snapshot(store).table("documents", ["uri"])["uri"].to_pylist()
        assert "pemberley.md" in uris
        undisturbed = cli.json("index", corpus, "-i", whole, *options[2:])
        assert undisturbed["snapshot"] == current_id(store)
