"""Addresses that server and client share: defaults, and proxies of the environment."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

from hirag_dist.errors import ConfigError

DEFAULT_LISTEN = "127.0.0.1:50051"
MAX_MESSAGE_BYTES = 16 * 1024 * 1024


_SCHEME = re.compile(r"^(dns:(//[^/]*/)?|ipv[46]:)")


def proxy_options(target: str) -> list[tuple[str, int]]:
    """Return the channel arguments that keep a channel from a proxy where none should be asked.

    Those are addresses of this machine, and hosts that `no_proxy` or `NO_PROXY` names: gRPC itself reads only the name
    in lower case.

    Args:
        target: HOST:PORT, or a gRPC name whose addresses are used in turn.

    >>> proxy_options("localhost:50051"), proxy_options("ipv4:127.0.0.1:1,127.0.0.2:1"), proxy_options("[::1]:1")
    ([('grpc.enable_http_proxy', 0)], [('grpc.enable_http_proxy', 0)], [('grpc.enable_http_proxy', 0)])
    """
    hosts = [urlsplit(f"//{address}").hostname or "" for address in _SCHEME.sub("", target).split(",")]
    direct = all(is_loopback(host) or proxy_bypass(host) for host in hosts)
    return [("grpc.enable_http_proxy", 0)] if direct else []


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`: "localhost" or a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def join_address(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around IPv6.

    >>> join_address("::1", 50051)
    '[::1]:50051'
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
