"""The HTTP APIs as a part of the HTTP server: their routes, and the checks before them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from importlib import resources
from urllib.parse import urlsplit

import grpc
from aiohttp import web

from hirag_dist.service.http_api import openai_routes, rpc_routes
from hirag_dist.service.http_api.openai_routes import OpenAiRoutes
from hirag_dist.service.http_api.requests import ApiRequests
from hirag_dist.service.http_api.rpc_routes import RpcRoutes
from hirag_dist.service.http_api.status_error import StatusError
from hirag_dist.service.web.request_checks import Handler

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


logger = logging.getLogger(__name__)
DOCUMENT = "/openapi.json"


class HttpApi:
    """The routes of the APIs.

    Args:
        requests: reads the requests and makes the calls.
        checks: of host and origin.
    """

    def __init__(self, requests: ApiRequests, checks: AccessChecks) -> None:
        self._checks = checks
        self._rpcs = RpcRoutes(requests)
        self._openai = OpenAiRoutes(requests)
        self._openapi = resources.files("hirag_dist.service.http_api").joinpath("openapi.json").read_bytes()

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        self._rpcs.add_to(router)
        self._openai.add_to(router)
        router.add_get(DOCUMENT, self._document)

    def serves(self, path: str) -> bool:
        """Return whether a path is one of the APIs'."""
        return path == DOCUMENT or path.startswith((rpc_routes.PREFIX, openai_routes.PREFIX))

    async def _document(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._openapi, content_type="application/json")

    async def reply(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request for one of the APIs, and pass it on or refuse it with a reason."""
        fault = self._checks.fault(request)
        if fault is not None:
            status, why = fault
            logger.warning("refused %s %.200r from %s: %s", request.method, request.path, request.remote, why)
            error = StatusError(grpc.StatusCode.PERMISSION_DENIED, why)
            if request.path.startswith(openai_routes.PREFIX):
                return openai_routes.error_response(error, status)
            return rpc_routes.error_response(error, status)
        if request.method == "OPTIONS":
            return self._checks.preflight(request)
        return await handler(request)

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers for other origins: a signal handler of the application, so that streams have them too."""
        if self.serves(request.path):
            response.headers.update(self._checks.headers(request))
