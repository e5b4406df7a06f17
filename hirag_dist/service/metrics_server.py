"""HTTP endpoint of `GET /metrics` and `GET /ready`, in a thread of its own, and the metrics of `hirag-dist watch`."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import MetricsHandler

from hirag_dist.errors import BackendUnavailable
from hirag_dist.wire.addresses import join_address, split_address

logger = logging.getLogger(__name__)
_TIMEOUT_S = 10  # of a connection without progress


@contextmanager
def serve_metrics(address: str, registry: CollectorRegistry, ready: Callable[[], bool]) -> Iterator[str]:
    """Serve `GET /metrics` and `GET /ready` for as long as the block lasts. Yield HOST:PORT with the real port.

    `/ready` returns 200 or 503, for clients that cannot use gRPC health, such as a kubelet if the service uses TLS.

    Args:
        address: HOST:PORT; port 0 takes a free one.
        ready: returns whether requests are accepted. Called in other threads.

    Raises:
        ConfigError: the address is no HOST:PORT.
        BackendUnavailable: it cannot be listened on.
    """
    host, port = split_address(address)
    server_class = _Server6 if ":" in host else _Server
    try:
        server = server_class((host, port), _page_class(registry, ready))
    except OSError as error:
        raise BackendUnavailable(
            f"metrics cannot be served on {address} ({error.strerror}); choose another service.metrics_listen"
        ) from error
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        shown = join_address(host, server.server_address[1])
        logger.info("metrics on http://%s/metrics", shown)
        yield shown
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing: clients may disconnect at any time."""


class _Server6(_Server):
    address_family = socket.AF_INET6


def _page_class(registry: CollectorRegistry, ready: Callable[[], bool]) -> type[MetricsHandler]:
    """Return the handler of requests."""

    class Page(MetricsHandler.factory(registry)):  # type: ignore[misc]
        timeout = _TIMEOUT_S
        server_version, sys_version = "hirag-dist", ""

        def do_GET(self) -> None:  # noqa: N802 - the name that the library calls
            path = urlsplit(self.path).path
            if path == "/metrics":
                super().do_GET()
            elif path == "/ready":
                serving = ready()
                self.send_response(200 if serving else 503)
                self.send_header("Content-Type", "text/plain")
                self.end_headers()
                self.wfile.write(b"serving\n" if serving else b"not serving\n")
            else:
                self.send_error(404)

    return Page


class WatchMetrics:
    """Metrics of one process that follows an input."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.oldest = Gauge(
            "hirag_watch_oldest_change_seconds",
            "Age of the oldest change of the input that no snapshot has yet; 0 if there is none.",
            registry=self.registry,
        )
        self.updates = Counter(
            "hirag_watch_updates", "Updates that changed the documents of the index.", registry=self.registry
        )
        self.failures = Counter(
            "hirag_watch_failures", "Listings and updates that failed, and are tried again.", registry=self.registry
        )
