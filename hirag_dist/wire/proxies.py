"""Proxies of the environment (`http_proxy`, `https_proxy`), which gRPC uses for addresses of this machine too."""

from __future__ import annotations

import re
from ipaddress import ip_address
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

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
    direct = all(_is_loopback(host) or proxy_bypass(host) for host in hosts)
    return [("grpc.enable_http_proxy", 0)] if direct else []


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
