"""SIGTERM ends the service within the time of its drain, whatever it waits for."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.generated import generate
from benchmarks.served import served
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import ServiceError
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

STUCK = """
import threading
from hirag_dist.service.supervisor import exit_within
exit_within(0.2)
threading.Thread(target=threading.Event().wait).start()  # as a call that never returns: Python waits for its thread
"""


@pytest.mark.integration
def test_a_process_that_does_not_end_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"has not ended within 0.2 s" in done.stderr


@pytest.mark.integration
async def test_sigterm_ends_a_service_whose_endpoint_never_answers(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    generate(store, 1000)
    manifest = open_snapshot(store).manifest
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are accepted, nothing is ever sent
        at = f"llm.endpoints.far={{kind: openai, base_url: 'http://127.0.0.1:{silent.getsockname()[1]}/v1', "
        at += f"model: {manifest.embedder}, dim: {manifest.dim}}}"
        settings = ["service.drain_s=1", at, "llm.roles.embed=far"]
        with served(str(tmp_path), settings=settings) as service:
            async with AsyncHiragClient(service.address, timeout_s=300, retries=False) as client:
                asking = asyncio.create_task(client.answer("Who was it?"))
                connection, _ = await asyncio.to_thread(silent.accept)
                began = time.monotonic()
                service.process.send_signal(signal.SIGTERM)
                with pytest.raises(ServiceError):
                    await asking
            assert await asyncio.to_thread(service.process.wait, 60) == 0
            assert time.monotonic() - began < 20  # drain 1 s, closing some more on a loaded machine
            connection.close()
