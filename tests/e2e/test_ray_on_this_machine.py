"""The Ray that the command starts: its ports, its remains after a kill, keys of endpoints, and the same snapshot."""

from __future__ import annotations

import ipaddress
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hirag_dist.testing.simulator import SimulatorOptions
from tests.simulator_thread import SimulatorThread

KEY = "sk-3f9d1c7ab24e"
FAR_S = 240.0  # for what takes seconds on a machine without other work


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """A folder for Ray's sessions; its path is short since the paths of sockets are limited to 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Job:
    """A build on Ray against an endpoint that wants a key."""

    def __init__(self, corpus: Path, folder: Path, ray_folder: Path, url: str) -> None:
        keyed = self.config(url, api_key="${SECRET_OF_TEST}") | {"execution": {"executor": "ray", "workers": 1}}
        (folder / "hirag.yaml").write_text(yaml.safe_dump(keyed))
        self.folder, self._corpus = folder, corpus
        self.environ = {
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "RAY_TMPDIR": str(ray_folder),
            "SECRET_OF_TEST": KEY,
        }

    def config(self, url: str, **key: str) -> dict[str, Any]:
        chat = {"base_url": url, "model": "extractive", "output": "delimited"} | key
        vectors = {"base_url": url, "model": "hashing", "dim": 384} | key
        roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat")
        llm = {"endpoints": {"chat": chat, "vectors": vectors}, "roles": roles | {"embed": "vectors"}}
        return {"chunk_tokens": 300, "clustering": {"target_size": 6}, "llm": llm}

    def arguments(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "hirag_dist", *arguments]

    @contextmanager
    def build(self) -> Iterator[subprocess.Popen[str]]:
        command = ("index", str(self._corpus), "--index", str(self.folder / "index"), "--json")
        with (self.folder / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                self.arguments(*command, "--config", str(self.folder / "hirag.yaml")),
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=self.environ,
            )
        try:
            with process:
                yield process
        finally:
            process.kill()

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            self.arguments(*arguments), capture_output=True, text=True, env=self.environ, cwd=self.folder, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr


def wait_until(is_so: Callable[[], Any], build: subprocess.Popen[str] | None = None) -> None:
    until = time.monotonic() + FAR_S
    while not is_so():
        assert time.monotonic() < until
        assert build is None or build.poll() is None, "the build has ended"
        time.sleep(0.05)


def started(thread: SimulatorThread) -> Callable[[], bool]:
    """Return whether workers have sent calls since now."""
    before = thread.stats()["total"]["calls"]
    return lambda: thread.stats()["total"]["calls"] > before + 3


def processes(of: int) -> list[psutil.Process]:
    return [psutil.Process(of), *psutil.Process(of).children(recursive=True)]


def workers(build: subprocess.Popen[str]) -> list[psutil.Process]:
    found = []
    for each in processes(build.pid):
        with suppress(psutil.Error):
            found += [each] if each.name().startswith("ray::Worker") else []
    return found


def listened(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error):
        return [each.laddr.ip for each in process.net_connections(kind="inet") if each.status == psutil.CONN_LISTEN]
    return []


def is_loopback(address: str) -> bool:
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def files_with_key(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere Ray's own process ends the others")
def test_a_killed_build_leaves_nothing_running_no_open_port_and_no_key_and_goes_on(
    corpus: Path, tmp_path: Path, ray_folder: Path, forked: Any
) -> None:
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=200))
    with thread as url:
        job = Job(corpus, tmp_path, ray_folder, url)
        has_started = started(thread)
        with job.build() as build:
            wait_until(has_started, build)
            running = processes(build.pid)
            addresses = [address for process in running for address in listened(process)]
            assert len(addresses) >= 5, "of raylet, control service, agent, workers"
            assert [address for address in addresses if not is_loopback(address)] == []
            commands = [" ".join(each.cmdline()) for each in running if each.is_running()]
            build.kill()
        with job.build() as build:
            wait_until(lambda: workers(build), build)
            has_started = started(thread)
            wait_until(has_started, build)
            workers(build)[0].send_signal(signal.SIGABRT)  # it leaves a crash report in the log
            printed, _ = build.communicate(timeout=FAR_S)
        assert build.returncode == 0, (tmp_path / "stderr").read_text()
        report = json.loads(printed)  # stdout holds one object, whatever Ray prints
        assert report["complete"] is True
        index = ("--index", str(tmp_path / "index"))
        (tmp_path / "shown").write_text(job.run("status", *index, "--json") + job.run("config", "show"))
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0")) as url:
        config = job.config(url)
        inline = forked.build(inputs=[str(corpus)], index=tmp_path / "inline", config=config)
    assert inline["snapshot"] == report["snapshot"]
    wait_until(lambda: not any(each.is_running() for each in running))  # Ray's agents take a minute to notice
    (tmp_path / "printed").write_text("\n".join([printed, *commands]))
    assert "SIGABRT" in "".join(path.read_text() for path in ray_folder.rglob("worker-*.err"))
    assert files_with_key(tmp_path) == []
    assert files_with_key(ray_folder) == []
