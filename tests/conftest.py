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
        if not select.select([server.stdout], [], [], MILVUS_START_S)[0]:
            server.kill()
            pytest.skip(f"no Milvus server came up within {MILVUS_START_S} s: is there another on this machine?")
        assert server.stdout.readline() == "started\n"
        yield f"http://127.0.0.1:{port}"
        server.communicate(timeout=60)


@pytest.hookimpl(tryfirst=True)  # xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where two processes share the tests (`--dist loadgroup`), keep each file in one, and all that need Milvus: of a
    real server a machine takes one at a time."""
    of_milvus = {item.path for item in items if item.get_closest_marker("server")}
    for item in items:
        item.add_marker(pytest.mark.xdist_group("milvus" if item.path in of_milvus else str(item.path)))
