"""Why an endpoint cannot be reached, in words that say what to do."""

from __future__ import annotations

import errno
import ipaddress
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import httpx2

from hirag_dist.config.base import public_url


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost" or host.lower().endswith(".localhost")


def through_proxy(url: str) -> str:
    """Return which proxy the environment sets for a URL, as the end of a sentence; "" for none."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or is_loopback(host) or proxy_bypass(host):
        return ""
    return f" through the proxy {public_url(proxy)}"


def connection_problem(error: BaseException, url: str) -> str | None:
    """Return why no connection came about; None where there was one, or the error is another.

    Args:
        url: the address, without credentials.
    """
    causes = list(_causes(error))
    host = urlsplit(url).hostname or url
    proxy = through_proxy(url)
    if proxy and any(isinstance(cause, httpx2.ProxyError | aiohttp.ClientProxyConnectionError) for cause in causes):
        return f"no connection{proxy}: {causes[-1]}; mend HTTP_PROXY and HTTPS_PROXY, or name {host} in NO_PROXY"
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError | aiohttp.ClientConnectorCertificateError):
            return (
                f"the TLS certificate of {url} cannot be verified ({getattr(cause, 'verify_message', '') or cause}): "
                "if an authority of your own signed it, set SSL_CERT_FILE to the file of its certificate"
            )
        if isinstance(cause, ssl.SSLError):
            return f"no TLS at {url} ({cause.reason or cause}): is it http:// in place of https://?"
        if isinstance(cause, socket.gaierror | aiohttp.ClientConnectorDNSError):
            return f"the name {host} cannot be resolved{proxy}: check base_url and the network"
        if isinstance(cause, ConnectionRefusedError) or getattr(cause, "errno", None) == errno.ECONNREFUSED:
            return f"connection refused at {url}{proxy}: is the server running?"
    for cause in causes:
        if isinstance(cause, aiohttp.ConnectionTimeoutError):
            return f"no connection to {url}{proxy} in time: is the address right, and does a firewall let it through?"
        if isinstance(cause, aiohttp.ClientConnectorError | httpx2.ConnectError):
            return f"no connection to {url}{proxy}: {cause}"
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and all that caused it, those that were tried side by side too."""
    waiting, seen = [error], set[int]()
    while waiting:
        cause = waiting.pop(0)
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        waiting += [getattr(cause, "os_error", None), getattr(cause, "certificate_error", None), cause.__cause__]
        waiting += getattr(cause, "exceptions", ())
