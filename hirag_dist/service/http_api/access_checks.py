"""Checks of the host and the origin of requests to the HTTP APIs, and the headers that let other origins call them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from aiohttp import web

ANY_ORIGIN = "*"
_ALLOWED_METHODS = "GET, POST"
_MAX_AGE_S = "600"  # for which a browser keeps the reply to a preflight
_EXPOSED = "Retry-After, X-Request-Id"


class AccessChecks:
    """Checks that keep pages of other sites from asking on behalf of a browser's user.

    A program sends no Origin header and may use any host name, unless the service has no callers: then a browser needs
    no token either, so a host name that leads to this machine but is not the service's (DNS rebinding) is refused.

    Args:
        serves: returns whether the name in a Host header is the service's.
        origins: origins whose pages may call the APIs, such as https://chat.example.com; "*" is any.
        callers: whether every request needs a token.
    """

    def __init__(self, serves: Callable[[str], bool], origins: Iterable[str], *, callers: bool) -> None:
        self._serves = serves
        self._origins = frozenset(origin.lower().rstrip("/") for origin in origins)
        self._callers = callers

    def fault(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and the reason for refusing a request, None for one that passes."""
        host = request.headers.get("Host", "")
        if not self._callers and not self._serves(host):
            return 421, f"this service is not {host!r}; the operator can add a name with service.http_names"
        origin = request.headers.get("Origin")
        if origin is None:
            if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                return 403, "a page of another site made this request"
            return None
        if self._is_own(origin, host) or self._allows(origin):
            return None
        return (
            403,
            f"pages of {origin!r} may not call this service; the operator can allow it with service.http_origins",
        )

    def headers(self, request: web.Request) -> dict[str, str]:
        """Return the headers by which a browser lets an allowed origin read the reply."""
        origin = request.headers.get("Origin")
        if not self._origins:
            return {}
        if origin is None or not self._allows(origin):
            return {"Vary": "Origin"}
        return {"Vary": "Origin", "Access-Control-Allow-Origin": origin, "Access-Control-Expose-Headers": _EXPOSED}

    def preflight(self, request: web.Request) -> web.Response:
        """Return the reply to a browser that asks whether its page may send a request."""
        wanted = request.headers.get("Access-Control-Request-Headers")
        headers = self.headers(request) | {
            "Access-Control-Allow-Methods": _ALLOWED_METHODS,
            "Access-Control-Max-Age": _MAX_AGE_S,
        }
        if wanted is not None and "Access-Control-Allow-Origin" in headers:
            headers["Access-Control-Allow-Headers"] = wanted
        return web.Response(status=204, headers=headers)

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            return urlsplit(origin).netloc.lower() == host.lower()
        except ValueError:  # such as http://[
            return False

    def _allows(self, origin: str) -> bool:
        return ANY_ORIGIN in self._origins or origin.lower() in self._origins
