"""The Ray that the command starts: its ports, its remains after a kill, keys of endpoints, and the same snapshot."""

from __future__ import annotations

import ipaddress
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from hirag_dist.testing.simulator import SimulatorOptions
from tests.e2e.conftest import FAR_S, paid_endpoint, until
from tests.simulator_thread import SimulatorThread

KEY = "sk-3f9d1c7ab24e"


@pytest.fixture
def ray_folder() -> Iterator[Path]:
    """A folder for Ray's sessions; its path is short since the paths of sockets are limited to 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    with process:
        try:
            yield process
        finally:
            process.kill()


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
    cli: Any, corpus: Path, tmp_path: Path, ray_folder: Path, forked: Any
) -> None:
    cli.environ = {"RAY_TMPDIR": str(ray_folder), "SECRET_OF_TEST": KEY}
    index, settings = ("--index", tmp_path / "index"), {"chunk_tokens": 300, "clustering": {"target_size": 6}}
    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", latency_ms=200))
    with thread as url, (tmp_path / "stderr").open("w") as stderr:
        keyed = settings | {"llm": paid_endpoint(url, api_key="${SECRET_OF_TEST}")}
        (tmp_path / "hirag.yaml").write_text(yaml.safe_dump(keyed | {"execution": {"executor": "ray", "workers": 1}}))
        command = ("index", corpus, *index, "--json", "--config", tmp_path / "hirag.yaml")
        has_started = started(thread)
        with killed_at_the_end(cli.start(*command, stderr=stderr)) as build:
            until(has_started, build)
            running = processes(build.pid)
            addresses = [address for process in running for address in listened(process)]
            assert len(addresses) >= 5, "of raylet, control service, agent, workers"
            assert [address for address in addresses if not is_loopback(address)] == []
            commands = [" ".join(each.cmdline()) for each in running if each.is_running()]
        with killed_at_the_end(cli.start(*command, stderr=stderr)) as build:
            until(lambda: workers(build), build)
            until(started(thread), build)
            workers(build)[0].send_signal(signal.SIGABRT)  # it leaves a crash report in the log
            printed, _ = build.communicate(timeout=FAR_S)
        assert build.returncode == 0, (tmp_path / "stderr").read_text()
        report = json.loads(printed)  # stdout holds one object, whatever Ray prints
        assert report["complete"] is True
        (tmp_path / "shown").write_text(cli("status", *index, "--json").stdout + cli("config", "show").stdout)
    with SimulatorThread(SimulatorOptions(listen="127.0.0.1:0")) as url:
        config = settings | {"llm": paid_endpoint(url)}
        inline = forked.run(inputs=[str(corpus)], index=tmp_path / "inline", config=config)
    assert inline["snapshot"] == report["snapshot"]
    until(lambda: not any(each.is_running() for each in running))  # Ray's agents take a minute to notice
    (tmp_path / "printed").write_text("\n".join([printed, *commands]))
    assert "SIGABRT" in "".join(path.read_text() for path in ray_folder.rglob("worker-*.err"))
    assert files_with_key(tmp_path) == []
    assert files_with_key(ray_folder) == []
