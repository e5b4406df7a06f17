"""Options of the gRPC server and of the HTTP server, checked when they are made, and what follows of them."""

from __future__ import annotations

import errno
import logging
import resource
import socket
from dataclasses import dataclass

from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.wire.addresses import DEFAULT_LISTEN, MAX_MESSAGE_BYTES, is_loopback, join_address, split_address

MAX_REQUEST_BYTES = 1024 * 1024  # a request is held in memory before its caller is authenticated


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Address, security and limits of the gRPC server. What is a key of the section `service` has its meaning there.

    Attributes:
        max_message_bytes: of a reply; a request may have 1 MiB at most.
        max_concurrent_retrievals: retrievals at a time in this process; the others queue.
        max_queue_wait_s: longest expected wait in the queue; a request that would wait longer is rejected with
            RESOURCE_EXHAUSTED.
        send_timeout_s: time for which a client may leave a part of a stream unread before the rest is dropped.
        keepalive_s: seconds of silence after which a connection is probed.
        min_ping_interval_s: seconds between a client's probes during a silent call; a client that probes more often is
            disconnected. Clients are asked for 10 s: half of it leaves room for probes that arrive unevenly.
        reuse_port: let several processes share the port.
        callers_grace_s: seconds for which the callers stay valid when the callers file is missing, unreadable or empty;
            then every caller is refused.
        anonymous_labels: labels of callers if there is no callers file; None for all.
        poll_s: seconds between two checks of the files of certificates and callers.
        traces_endpoint: URL of an OpenTelemetry collector; None sends no traces.

    Raises:
        ConfigError: TLS is half configured, or the address is open to the network without authentication.
    """

    listen: str = DEFAULT_LISTEN
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_concurrent_retrievals: int = 4
    max_queue_wait_s: float = 0.25
    max_concurrent_answers: int = 64
    max_context_tokens: int = 32_000
    map_reduce: bool = False
    max_concurrent_requests: int = 256
    send_timeout_s: float = 30.0
    keepalive_s: float = 60.0
    min_ping_interval_s: float = 5.0
    drain_delay_s: float = 0.0
    drain_s: float = 20.0
    reflection: bool = True
    reuse_port: bool = False
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    callers_file: str | None = None
    callers_grace_s: float = 60.0
    anonymous_labels: frozenset[str] | None = frozenset()
    poll_s: float = 2.0
    metrics_listen: str | None = None
    access_log: bool = True
    log_questions: bool = False
    traces_endpoint: str | None = None

    def __post_init__(self) -> None:
        host, _ = split_address(self.listen)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise ConfigError("tls_client_ca needs tls_cert and tls_key too")
        if not is_loopback(host) and self.callers_file is None and self.tls_client_ca is None:
            raise ConfigError(
                f"listening on {self.listen} opens the index to anybody on the network: require authentication by "
                "callers_file (`hirag-dist serve token NAME` makes a token) or by tls_client_ca, or listen on "
                "127.0.0.1"
            )
        if self.metrics_listen is not None:
            split_address(self.metrics_listen)


logger = logging.getLogger(__name__)
_KEEPALIVE_TIMEOUT_S = 20
_HANDSHAKE_TIMEOUT_S = 20
_MAX_CONNECTIONS = 4096  # maximum connections of a process at a time
_IDLE_S = 300  # without a request, after which a connection is closed
_AGE_S, _AGE_GRACE_S = 600, 300
_MAX_DESCRIPTORS = 65_536
_MAX_STREAMS = 100  # of one connection: bounds the data that a client who reads nothing can leave unread


def channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    """Return the channel arguments of a server with these options."""
    return [
        ("grpc.so_reuseport", int(options.reuse_port)),  # on by default, which would hide that a port is in use
        ("grpc.max_receive_message_length", min(options.max_message_bytes, MAX_REQUEST_BYTES)),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.keepalive_time_ms", int(options.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", int(options.min_ping_interval_s * 1000)),
        ("grpc.max_allowed_incoming_connections", _MAX_CONNECTIONS),  # more are closed as they come
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_S * 1000),
        ("grpc.max_connection_idle_ms", _IDLE_S * 1000),
        # asked to reconnect, so that load balancers can move connections; then the requests have time to finish
        ("grpc.max_connection_age_ms", _AGE_S * 1000),
        ("grpc.max_connection_age_grace_ms", _AGE_GRACE_S * 1000),
    ]


def probe(host: str, port: int, *, reuse_port: bool = False, option: str = "--listen") -> None:
    """Bind an address and release it. gRPC does not report why it cannot bind, and accepts one free address of several.

    Args:
        option: Option of the command line that has the address, for errors.

    Raises:
        BackendUnavailable: the host is unknown, the port is in use, or the address is not of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise BackendUnavailable(f"the host {host} is unknown; choose another with {option}") from error
    refused: list[OSError] = []
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if reuse_port:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                probe.bind(address)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise BackendUnavailable(f"port {port} is in use; choose another with {option}") from error
            if error.errno == errno.EACCES:
                raise BackendUnavailable(
                    f"port {port} needs more rights; choose one above 1023 with {option}"
                ) from error
            refused.append(error)
    if len(refused) == len(found):
        reason = refused[0].strerror if refused else "no address"
        raise BackendUnavailable(f"{host} is no address of this machine ({reason}); choose another with {option}")


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit, at most to 65,536.

    The soft limit is 1,024 on many systems, for programs that use `select`; nothing here does.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error)


LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class PageOptions:
    """Address, host names, security and limits of the page. TLS files are those of the section `service`.

    Attributes:
        listen, page, names, origins, client_cert, client_key: the keys of that section that begin with `http`.
        callers: whether the service has a callers file; then the page rejects a question without a token, which would
            otherwise be asked with the page's own certificate.
        max_api_body_bytes: of a request to the APIs.
        max_api_requests: requests to the APIs at a time; more are rejected with 429.
        timeout_s: seconds that a question may take where its client does not say.
        body_s: seconds that a request may take to arrive.
        drain_delay_s: seconds for which a page in a process of its own still answers after a signal, as the service.
        drain_s: seconds that questions have to finish when the page stops.
        reuse_port: whether another process reserves the address for the page.
        poll_s: seconds between two checks of the certificates.

    Raises:
        ConfigError: the address is malformed, TLS is half configured, or the address is open to the network without
            TLS and callers.
    """

    listen: str
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_client_ca: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    callers: bool = False
    page: bool = True
    origins: tuple[str, ...] = ()
    max_api_body_bytes: int = 1024 * 1024
    max_api_requests: int = 320
    timeout_s: float = 120.0
    body_s: float = 10.0
    drain_delay_s: float = 0.0
    drain_s: float = 5.0
    reuse_port: bool = False
    poll_s: float = 2.0

    def __post_init__(self) -> None:
        host, _ = split_address(self.listen)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both tls_cert and tls_key")
        if (self.client_cert is None) != (self.client_key is None):
            raise ConfigError("the page's own certificate needs both http_client_cert and http_client_key")
        if self.tls_client_ca is not None and self.client_cert is None:
            raise ConfigError(
                "the service asks its clients for a certificate (tls_client_ca), and the page is one of them: give "
                "http_client_cert and http_client_key"
            )
        if "*" in self.origins and not self.callers:
            raise ConfigError(
                "http_origins: * lets every web page ask where no token is needed; name the origins, or give a "
                "callers_file"
            )
        if not is_loopback(host) and (self.tls_cert is None or not self.callers):
            raise ConfigError(
                f"a page at {self.listen} opens the index to the network: give tls_cert and tls_key and a "
                f"callers_file, or let it listen on 127.0.0.1"
            )


def reached_at(address: str) -> str:
    """Return the address under which a process of this machine reaches a service.

    >>> reached_at("0.0.0.0:50051"), reached_at("[::]:50051"), reached_at("10.0.0.7:50051")
    ('127.0.0.1:50051', '[::1]:50051', '10.0.0.7:50051')
    """
    host, port = split_address(address)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return join_address(host, port)


def url_of(options: PageOptions, port: int | None = None) -> str:
    """Return the page's address for a browser.

    Args:
        port: the real one, if that of the options is 0.

    >>> url_of(PageOptions("[::1]:8080"))
    'http://[::1]:8080/'
    """
    host, given = split_address(options.listen)
    scheme = "http" if options.tls_cert is None else "https"
    return f"{scheme}://{join_address(host, given if port is None else port)}/"
