"""What every test needs."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_works() -> Iterator[None]:
    """A shell that starts the tests in the background has SIGINT ignored, and every process they start with it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def milvus_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A real Milvus server: the one that MILVUS_URI names, else one that the wheel `milvus` starts."""
    if named := os.environ.get("MILVUS_URI"):
        yield named
        return
    milvus = pytest.importorskip("milvus", reason="needs MILVUS_URI, or `pip install milvus==2.3.5`")
    server = milvus.MilvusServer()
    server.set_base_dir(str(tmp_path_factory.mktemp("milvus")))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        server.listen_port = probe.getsockname()[1]
    server.start()
    try:
        yield f"http://127.0.0.1:{server.listen_port}"
    finally:
        server.stop()
