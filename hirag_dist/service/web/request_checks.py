"""Security checks of requests for the page, and security headers of every reply."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import urlsplit

from aiohttp import web

from hirag_dist.service.web.options import LOOPBACK_NAMES

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Only the page's own files run, only this origin is contacted, and no script can turn text into HTML.
_POLICY = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
)
HEADERS = {
    "Content-Security-Policy": "; ".join(_POLICY),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Server": "hirag-dist",  # without versions of libraries
}


class RequestChecks:
    """Rejects requests under a name that is not the page's, and adds `HEADERS` to every reply.

    Args:
        secure: whether the page is served over HTTPS.

    Attributes:
        names: allowed host names in addition to those of loopback; "*." stands for one label.
    """

    def __init__(self, names: Iterable[str], *, secure: bool) -> None:
        self.names = frozenset(name.lower() for name in names)
        self._secure = secure

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers: a signal handler of the application, so that streams have them too."""
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        if self._secure:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Pass a request on, or reject it with a reason."""
        fault = self.fault(request)
        if fault is not None:
            status, why = fault
            logger.warning("refused %s %.200r from %s: %s", request.method, request.path, request.remote, why)
            return web.json_response({"error": {"kind": "Forbidden", "message": why}}, status=status)
        return await handler(request)

    def fault(self, request: web.Request) -> tuple[int, str] | None:
        """Return the status and the reason for rejecting a request, None for one that passes.

        A host name that resolves to this machine but is not the page's (DNS rebinding) is rejected. Calls of the page
        are requests of the APIs, which have checks of their own.
        """
        host = request.headers.get("Host", "")
        if not self.serves(host):
            return 421, f"this page is not {host!r}; the operator can add a name with service.http_names"
        return None

    def serves(self, host: str) -> bool:
        """Return whether the name in a Host header is the page's, with any port, since ports may be forwarded."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return name in LOOPBACK_NAMES or name in self.names or f"*.{name.partition('.')[2]}" in self.names
