"""A real Milvus server for the tests of a run, however many workers of xdist it has.

The wheel's server has fixed ports within, so a machine has room for one. The worker that needs it first starts it; it
ends when no worker needs it any more.
"""

from __future__ import annotations

import fcntl
import importlib.util
import select
import socket
import subprocess
import sys
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
    address = folder / "milvus.uri"
    with (folder / "milvus.users").open("a") as users:
        with FileLock(folder / "milvus.lock"):
            fcntl.flock(users, fcntl.LOCK_SH)  # it waits for the end of a server that nobody uses any more
            server = None if address.exists() else _start(folder / "milvus", address)
        try:
            yield address.read_text()
        finally:
            if server:
                fcntl.flock(users, fcntl.LOCK_EX)  # when the others have ended
                address.unlink()
                server.communicate(timeout=60)  # it ends with its input


def _start(folder: Path, address: Path) -> subprocess.Popen[str]:
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
    address.write_text(f"http://127.0.0.1:{port}")
    return server
