"""`GET /metrics`: one page, over HTTP, in a thread of its own."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from hirag_dist.errors import BackendUnavailable
from hirag_dist.service.options import split_address

_LOG = logging.getLogger(__name__)
_MOST_READERS = 8  # at a time
_TIMEOUT_S = 10  # for a reader who does not get on


@contextmanager
def serve_metrics(address: str, registry: CollectorRegistry) -> Iterator[str]:
    """Answer `GET /metrics` for as long as the block lasts. Yield HOST:PORT with the real port.

    Raises:
        ConfigError: the address is no HOST:PORT.
        BackendUnavailable: it cannot be listened on.
    """
    host, port = split_address(address)
    readers = threading.BoundedSemaphore(_MOST_READERS)

    class Page(BaseHTTPRequestHandler):
        timeout = _TIMEOUT_S
        server_version, sys_version = "hirag-dist", ""

        def do_GET(self) -> None:
            if urlsplit(self.path).path != "/metrics":
                self.send_error(404)
                return
            encode, kind = choose_encoder(self.headers.get("Accept", ""))
            body = encode(registry)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: every scrape would be a line."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

        def process_request(self, request: object, client_address: object) -> None:
            if not readers.acquire(blocking=False):
                self.shutdown_request(request)  # type: ignore[arg-type]
                return
            super().process_request(request, client_address)  # type: ignore[arg-type]

        def process_request_thread(self, request: object, client_address: object) -> None:
            try:
                super().process_request_thread(request, client_address)  # type: ignore[arg-type]
            finally:
                readers.release()

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing of readers who went away."""

    try:
        server = Server((host, port), Page)
    except OSError as error:
        raise BackendUnavailable(
            f"metrics cannot be served on {address} ({error.strerror}); choose another service.metrics_listen"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        bound = server.server_address[1]
        shown = f"[{host}]:{bound}" if ":" in host else f"{host}:{bound}"
        _LOG.info("metrics on http://%s/metrics", shown)
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
