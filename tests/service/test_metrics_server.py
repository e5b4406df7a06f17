"""Slow clients of the metrics page."""

from __future__ import annotations

import socket
import time
import urllib.request
from contextlib import ExitStack

from prometheus_client import CollectorRegistry

from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import split_address


def test_a_client_that_sends_its_request_slowly_is_closed() -> None:
    with serve_metrics("127.0.0.1:0", CollectorRegistry(), lambda: True, 0.3) as address, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(split_address(address), 30)) for _ in range(8)]
        for connection in slow:
            connection.sendall(b"GET /met")
        for connection in slow:
            assert connection.recv(1) == b""
        until = time.monotonic() + 30
        while not _is_ready(address):  # their threads end a moment later
            assert time.monotonic() < until


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/ready", timeout=30) as response:
            return bool(response.status == 200)
    except OSError:
        return False
