"""Ray's node on this machine: on loopback, with what a build needs, and without remains of a driver that was killed.

Ray has no public options for this, so its class of a node is replaced while a node starts.
"""

from __future__ import annotations

import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ray import _raylet
from ray._private import node
from ray._private.node import Node

LOOPBACK = "127.0.0.1"
_AGENT_PORTS = range(10_000, 32_000)  # below the ports that systems give to outgoing connections
_UNUSED_PORTS = ("METRICS_AGENT_PORT_NAME", "METRICS_EXPORT_PORT_NAME", "DASHBOARD_AGENT_LISTEN_PORT_NAME")
_NO_PORT = -1
_GROUP, _START_TIME = 2, 19  # fields of /proc/PID/stat after the name
_KILL_AGENTS = """\
read _
while [ $# -gt 0 ]; do
    [ "$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20)" = "$2" ] && kill -KILL "$1"
    shift 2
done
"""


class LocalNode(Node):
    """A node that listens on loopback only.

    The raylet ends itself if the agents, two Python processes, have not named their ports within 15 s, which a loaded
    machine exceeds. So the one port that is used is chosen here, and the others are declared absent before the raylet
    starts. The monitor of the autoscaler and that of logs are not started.
    """

    def __init__(self, ray_params: Any, **options: Any) -> None:
        wanted = {
            "node_ip_address": LOOPBACK,
            "runtime_env_agent_port": free_port(),
            "no_monitor": True,
            "include_log_monitor": False,
        }
        ray_params.update(**{name: value for name, value in wanted.items() if hasattr(ray_params, name)})
        super().__init__(ray_params, **options)

    def start_raylet(self, *arguments: Any, **options: Any) -> None:
        """Start the raylet; it finds the ports of the agents in the folder of the session."""
        if hasattr(_raylet, "persist_port"):  # versions without it wait for no port
            for name in _UNUSED_PORTS:
                _raylet.persist_port(self._session_dir, self._node_id, getattr(_raylet, name), _NO_PORT)
        super().start_raylet(*arguments, **options)


@contextmanager
def local_nodes() -> Iterator[None]:
    """Start nodes as `LocalNode` while the block lasts."""
    module: Any = node
    module.Node = LocalNode
    try:
        yield
    finally:
        module.Node = Node


def free_port() -> int:
    """Return a port of loopback that is free now, and that no outgoing connection will be given."""
    while True:
        port = random.choice(_AGENT_PORTS)
        with suppress(OSError), socket.socket() as trial:
            trial.bind((LOOPBACK, port))
            return port


class AgentWatcher:
    """A process that ends the agents of a node once this process has ended, however it ended.

    Linux ends the other processes of a node together with this one. The agents are children of the raylet; they notice
    its death after a few seconds, and then try for a minute to report it.
    """

    def __init__(self, raylet_pid: int) -> None:
        """Start the process, where the system lists the children of processes."""
        agents = [each for pid in _children(raylet_pid) for each in _agent(pid)]
        self._process: subprocess.Popen[bytes] | None = None
        if agents:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _KILL_AGENTS, "sh", *agents],
                stdin=subprocess.PIPE,  # ends with this process
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a signal to the group of this process does not end it
            )

    def stop(self) -> None:
        """End the process; the agents are left alone."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _children(pid: int) -> list[int]:
    if not sys.platform.startswith("linux"):
        return []
    with suppress(OSError):
        files = Path(f"/proc/{pid}/task").glob("*/children")
        return [int(child) for file in files for child in file.read_text().split()]
    return []


def _agent(pid: int) -> list[str]:
    """Return [pid, start time in ticks since boot] of an agent; nothing for a worker, which leads a process group."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        if int(fields[_GROUP]) != pid:
            return [str(pid), fields[_START_TIME]]
    return []
