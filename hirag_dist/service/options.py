"""How the service listens."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

from hirag_dist.errors import ConfigError
from hirag_dist.wire.defaults import DEFAULT_LISTEN, MAX_MESSAGE_BYTES

MOST_REQUEST_BYTES = 1024 * 1024  # of a request, which is held before anybody knows who sent it


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the service listens, and its limits.

    Attributes:
        listen: HOST:PORT; port 0 takes a free one. Beyond loopback callers must be known: by a callers file or by their
            certificates.
        max_message_bytes: of a reply; a request may have 1 MiB at most.
        places: retrievals worked at at a time in this process; the rest wait in line.
        max_wait_s: longest time that a request may be expected to wait in line; who would wait longer is turned away
            with RESOURCE_EXHAUSTED.
        max_answers: Answer calls at a time in this process.
        map_reduce: whether Answer is given in modes that cost a call to a model for each part of the corpus.
        max_concurrent: requests of any kind in this process at a time, those that wait or are being sent included.
        send_timeout_s: how long a caller may leave a piece of a stream unread before the rest is dropped.
        keepalive_s: seconds of silence after which a connection is probed.
        max_connection_age_s: seconds after which a connection is asked to reconnect, so that balancers can move it; 0
            for never.
        max_connection_age_grace_s: seconds that requests on it have to finish then; what is left is cut off.
        drain_delay_s: seconds that a service which is asked to stop goes on as before, but for its health, so that
            balancers hear of it before the port is closed.
        drain_s: seconds that requests have to finish then.
        reflection: whether the service describes its own protocol to tools such as grpcurl.
        reuse_port: let several processes share the port.
        tls_cert, tls_key: PEM files of the server's certificate chain and key.
        tls_client_ca: PEM file of the authority that signs clients' certificates; with it, clients need one (mTLS).
        callers_file: who may call, as `callers.read_callers`; with it, callers need a token or a certificate.
        anonymous_labels: labels that callers hold where there is no callers file; None for all.
        poll_s: seconds between two looks at the files named here.
        metrics_listen: HOST:PORT of Prometheus metrics; None for none.
        metrics_public: whether that may be an address that others can reach.
        access_log: form of the log's line for each request.
        log_questions: whether questions stand in it.
        traces_endpoint: URL of an OpenTelemetry collector; None sends no traces.
        traces_ratio: share of the traces that are sent.

    Raises:
        ConfigError: a value is out of range, TLS is half configured, or the address is open to anybody on the network.
    """

    listen: str = DEFAULT_LISTEN
    max_message_bytes: int = MAX_MESSAGE_BYTES
    places: int = 4
    max_wait_s: float = 0.25
    max_answers: int = 64
    map_reduce: bool = False
    max_concurrent: int = 256
    send_timeout_s: float = 30.0
    keepalive_s: float = 60.0
    max_connection_age_s: float = 600.0
    max_connection_age_grace_s: float = 300.0
    drain_delay_s: float = 0.0
    drain_s: float = 20.0
    reflection: bool = True
    reuse_port: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    callers_file: str | None = None
    anonymous_labels: frozenset[str] | None = frozenset()
    poll_s: float = 2.0
    metrics_listen: str | None = None
    metrics_public: bool = False
    access_log: Literal["text", "json", "off"] = "text"
    log_questions: bool = False
    traces_endpoint: str | None = None
    traces_ratio: float = 1.0

    def __post_init__(self) -> None:
        host, _ = split_address(self.listen)
        if self.max_message_bytes < 1024:
            raise ConfigError(f"max_message_bytes must be at least 1024, got {self.max_message_bytes}")
        for name in ("places", "max_answers", "max_concurrent", "keepalive_s"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("max_wait_s", "send_timeout_s"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("max_connection_age_s", "max_connection_age_grace_s", "drain_delay_s", "drain_s"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must not be negative, got {getattr(self, name)}")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("tls_client_ca needs tls_cert and tls_key too")
        if not is_loopback(host) and self.callers_file is None and self.tls_client_ca is None:
            raise ConfigError(
                f"listening on {self.listen} opens the index to anybody on the network: say who may call, by a "
                f"callers_file (`hirag-dist token NAME` makes a token) or by tls_client_ca, or listen on 127.0.0.1"
            )
        if self.metrics_listen is not None and not self.metrics_public:
            metrics_host, _ = split_address(self.metrics_listen)
            if not is_loopback(metrics_host):
                raise ConfigError(
                    f"metrics on {self.metrics_listen} can be read by anybody on the network: listen on 127.0.0.1, or "
                    f"say metrics_public: true where that is meant"
                )


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of HOST:PORT, brackets around IPv6 removed.

    Raises:
        ConfigError: it is not of that form.

    >>> split_address("[::1]:50051")
    ('::1', 50051)
    """
    host, colon, port = address.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    ok = colon and host and port.isascii() and port.isdigit() and int(port) <= 65535 and (bracketed or ":" not in host)
    if not ok:
        raise ConfigError(f"an address must be HOST:PORT, such as {DEFAULT_LISTEN} or [::1]:50051; got {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`: "localhost" or a loopback address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
