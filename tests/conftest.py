"""What every test needs."""

from __future__ import annotations

import importlib.util
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored, and every process they start with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


MILVUS_START_S = 120
MILVUS = """
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


@pytest.fixture(scope="session")
def milvus_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Milvus server: the one that MILVUS_URI names, else one that the wheel `milvus` starts."""
    if named := os.environ.get("MILVUS_URI"):
        yield named
        return
    if importlib.util.find_spec("milvus") is None:
        pytest.skip("needs MILVUS_URI, or `pip install milvus==2.3.5`")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", MILVUS, str(tmp_path_factory.mktemp("milvus")), str(port)]
    # In a process of its own: the package leaves sockets open, and warnings are errors here.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        came = select.select([server.stdout], [], [], MILVUS_START_S)[0]
        if not came or server.stdout.readline() != "started\n":
            server.kill()
            pytest.skip("no Milvus server came up: is there another on this machine? It takes one at a time")
        yield f"http://127.0.0.1:{port}"
        server.communicate(timeout=60)
