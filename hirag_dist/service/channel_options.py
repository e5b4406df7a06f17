"""Channel arguments of the gRPC server, a check that its port can be bound, and the limit of open files."""

from __future__ import annotations

import errno
import logging
import resource
import socket

from hirag_dist.errors import BackendUnavailable
from hirag_dist.service.options import MAX_REQUEST_BYTES, ServerOptions

logger = logging.getLogger(__name__)
_KEEPALIVE_TIMEOUT_S = 20
_HANDSHAKE_TIMEOUT_S = 20
_MAX_DESCRIPTORS = 65_536
_MAX_STREAMS = 100  # of one connection: bounds the data that a client who reads nothing can leave unread


def channel_options(options: ServerOptions) -> list[tuple[str, int]]:
    """Return the channel arguments of a server with these options."""
    chosen = [
        ("grpc.so_reuseport", int(options.reuse_port)),  # on by default, which would hide that a port is in use
        ("grpc.max_receive_message_length", min(options.max_message_bytes, MAX_REQUEST_BYTES)),
        ("grpc.max_send_message_length", options.max_message_bytes),
        ("grpc.max_concurrent_streams", _MAX_STREAMS),
        ("grpc.keepalive_time_ms", int(options.keepalive_s * 1000)),
        ("grpc.keepalive_timeout_ms", _KEEPALIVE_TIMEOUT_S * 1000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", int(options.min_ping_interval_s * 1000)),
        ("grpc.max_allowed_incoming_connections", options.max_connections),  # more are closed as they come
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_TIMEOUT_S * 1000),
        ("grpc.max_connection_idle_ms", int(options.max_connection_idle_s * 1000)),
    ]
    if options.max_connection_age_s:
        chosen.append(("grpc.max_connection_age_ms", int(options.max_connection_age_s * 1000)))
        chosen.append(("grpc.max_connection_age_grace_ms", int(options.max_connection_age_grace_s * 1000)))
    return chosen


def probe(host: str, port: int, *, reuse_port: bool = False, option: str = "--listen") -> None:
    """Bind an address and release it. gRPC does not report why it cannot bind, and accepts one free address of several.

    Args:
        option: of the command line that has the address, for errors.

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
