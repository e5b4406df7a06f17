"""A real Milvus server for the tests of a run, however many workers of xdist it has.

The wheel's server has fixed ports within, so a machine has room for one. The worker that needs it first starts it; it
ends when no worker needs it any more.
"""

from __future__ import annotations

import importlib.util
import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

START_S = 120
SERVER = """
import sys
from milvus import MilvusServer
server = MilvusServer()
server.set_base_dir(sys.argv[1])
server.listen_port = int(sys.argv[2])
server.start()
print("started", flush=True)
sys.stdin.read()
server.stop()
"""


class NoServer(Exception):
    """Why there is none."""


@contextmanager
def shared_server(folder: Path) -> Iterator[str]:
    """Lend the address of the server.

    Args:
        folder: what all workers of a run have in common.

    Raises:
        NoServer: it is not installed, or does not come up.
    """
    if importlib.util.find_spec("milvus") is None:
        raise NoServer("needs MILVUS_URI, or `pip install milvus==2.3.5`")
    users = _Users(folder)
    with users.lock:
        uri = users.uri()
        server = None if uri else _start(folder / "milvus")
        if server:
            users.begin(uri := server[1])
        users.add(1)
    assert uri
    try:
        yield uri
    finally:
        with users.lock:
            users.add(-1)
        if server:
            users.wait_for_none()
            server[0].communicate(timeout=60)  # it ends with its input


class _Users:
    """Count of the users of the server, in a file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "milvus.json"
        self.lock = FileLock(folder / "milvus.lock")

    def uri(self) -> str | None:
        return str(json.loads(self._file.read_text())["uri"]) if self._file.exists() else None

    def begin(self, uri: str) -> None:
        self._file.write_text(json.dumps({"uri": uri, "users": 0}))

    def add(self, users: int) -> None:
        held = json.loads(self._file.read_text())
        self._file.write_text(json.dumps(held | {"users": held["users"] + users}))

    def wait_for_none(self) -> None:
        """Wait until the server has no user, and remove it from the file."""
        while True:
            with self.lock:
                if json.loads(self._file.read_text())["users"] == 0:
                    self._file.unlink()
                    return
            time.sleep(0.2)


def _start(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start a server in a process of its own: the package leaves sockets open, and warnings are errors here."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", SERVER, str(folder), str(port)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    came = select.select([server.stdout], [], [], START_S)[0]
    if not came or server.stdout.readline() != "started\n":
        server.kill()
        server.communicate()
        raise NoServer("no Milvus server came up: is there another on this machine? It takes one at a time")
    return server, f"http://127.0.0.1:{port}"
