"""Ray nodes on one machine that share no network: each in a namespace of its own, joined by a bridge."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

_PORT = 6379
_HEALTH = {  # a dead node is noticed within seconds; one that is slow to start is given its time
    "health_check_initial_delay_ms": 10_000,
    "health_check_period_ms": 1000,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


def missing() -> str | None:
    """Return why there can be no namespaces here, None where there can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip` (iproute2)"
    name = f"hdtry{os.getpid() % 100_000}"
    made = _try("ip", "link", "add", name, "type", "bridge") and _try("ip", "netns", "add", name)
    _try("ip", "link", "del", name)
    _try("ip", "netns", "del", name)
    return None if made else "this machine lets nobody make network namespaces and bridges"


class Network:
    """A bridge at `gateway`, and a Ray node for each number: 0 is the head, without CPUs; the others have one.

    Entering makes the bridge; leaving kills whatever runs in the namespaces, and removes all of it.
    """

    def __init__(self, environment: dict[str, str]) -> None:
        self._tag = f"hd{os.getpid() % 100_000}"
        self._subnet = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}"
        self._environment = environment | {
            "RAY_AUTH_MODE": "token",  # as on a cluster that is closed to strangers; unset, it goes by ~/.ray
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_DISABLE_DOCKER_CPU_WARNING": "1",
        }
        self._folder = tempfile.mkdtemp(prefix="hd", dir="/tmp")  # short: Ray makes sockets far below it
        self._nodes: dict[int, list[subprocess.Popen[bytes]]] = {}
        self.gateway = f"{self._subnet}.1"
        self.address = f"{self._ip(0)}:{_PORT}"

    def __enter__(self) -> Network:
        _do("ip", "link", "add", self._tag, "type", "bridge")
        _do("ip", "addr", "add", f"{self.gateway}/24", "dev", self._tag)
        _do("ip", "link", "set", self._tag, "up")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in list(self._nodes):
            self.kill(number)
            _try("ip", "link", "del", self._cable(number))
            _try("ip", "netns", "del", self._namespace(number))
        _try("ip", "link", "del", self._tag)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, number: int) -> None:
        """Start a node, with its namespace where that is not there yet."""
        if number not in self._nodes:
            self._join(number)
        options = ["--head", f"--port={_PORT}", "--num-cpus=0", f"--system-config={json.dumps(_HEALTH)}"]
        options += ["--include-dashboard=false", f"--temp-dir={self._folder}"]
        if number:
            options = [f"--address={self.address}", "--num-cpus=1"]
        command = [str(Path(sys.executable).with_name("ray")), "start", *options, "--block", "--disable-usage-stats"]
        command += [f"--node-ip-address={self._ip(number)}", "--object-store-memory=100000000"]
        self._nodes[number].append(self.run(number, *command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))

    def run(self, number: int, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a program on a node."""
        inside = ["ip", "netns", "exec", self._namespace(number), *command]
        return subprocess.Popen(inside, env=self._environment, **options)

    def kill(self, number: int) -> None:
        """SIGKILL for every process of a node."""
        for pid in self.processes(number):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for process in self._nodes[number]:
            process.wait()
        self._nodes[number].clear()

    def processes(self, number: int) -> list[int]:
        """Return the processes of a node."""
        listed = subprocess.run(
            ["ip", "netns", "pids", self._namespace(number)], capture_output=True, text=True, check=False
        )
        return [int(pid) for pid in listed.stdout.split()]

    def cut(self, number: int) -> None:
        """Disconnect a node: its processes go on, and reach no other node."""
        _do("ip", "link", "set", self._cable(number), "down")

    def reaches(self, number: int, other: int) -> bool:
        """Return whether a node has a route to another."""
        return _try("ip", "netns", "exec", self._namespace(number), *_CONNECT, self._ip(other), str(_PORT))

    def _join(self, number: int) -> None:
        namespace, cable, end = self._namespace(number), self._cable(number), f"{self._tag}e{number}"
        self._nodes[number] = []
        _do("ip", "netns", "add", namespace)
        _do("ip", "link", "add", cable, "type", "veth", "peer", "name", end)
        _do("ip", "link", "set", cable, "master", self._tag, "up")
        _do("ip", "link", "set", end, "netns", namespace)
        within = ["ip", "-n", namespace]
        _do(*within, "addr", "add", f"{self._ip(number)}/24", "dev", end)
        _do(*within, "link", "set", end, "up")
        _do(*within, "link", "set", "lo", "up")
        _do(*within, "route", "add", "default", "via", self.gateway)  # Ray finds its own address by a way out

    def _namespace(self, number: int) -> str:
        return f"{self._tag}-{number}"

    def _cable(self, number: int) -> str:
        return f"{self._tag}v{number}"

    def _ip(self, number: int) -> str:
        return f"{self._subnet}.{number + 10}"


_CONNECT = (
    sys.executable,
    "-c",
    "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1).close()",
)


def _do(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)


def _try(*command: str) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
