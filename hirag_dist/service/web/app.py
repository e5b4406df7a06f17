"""The HTTP server as an aiohttp application: the APIs, and the static files of the page, which asks through them."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

import grpc
from aiohttp import web

from hirag_dist.service.http_api import openai_routes, rpc_routes
from hirag_dist.service.http_api.gateway import ClientPool, Gateway, StatusError
from hirag_dist.service.http_api.openai_routes import OpenAiRoutes
from hirag_dist.service.http_api.rpc_routes import ApiRequests, RpcRoutes
from hirag_dist.service.web.options import LOOPBACK_NAMES, PageOptions

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


_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_PROBES = ("/healthz", "/readyz")
_READY_S = 1.0  # for the gRPC service to say that it is ready


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file of the page."""

    body: bytes
    content_type: str
    tag: str

    def response(self, request: web.Request) -> web.Response:
        """Return the file, or 304 if the browser has it."""
        quoted = f'"{self.tag}"'
        headers = {"ETag": quoted, "Cache-Control": "no-cache"}  # cached, with a check at each use
        if quoted in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        response = web.Response(body=self.body, content_type=self.content_type, charset="utf-8", headers=headers)
        response.enable_compression()
        return response


def read_files() -> dict[str, StaticFile]:
    """Return the files by name; index.html is the page."""
    files: dict[str, StaticFile] = {}
    for entry in resources.files("hirag_dist.service.web").joinpath("static").iterdir():
        kind = _TYPES.get(entry.name[entry.name.rfind(".") :])
        if kind is not None:
            body = entry.read_bytes()
            files[entry.name] = StaticFile(body, kind, hashlib.sha256(body).hexdigest()[:16])
    return files


class PageApp:
    """The request handlers.

    Args:
        options: limits.
        guard: checks requests for the page first.
        gateways: Connections to the service.
        api: has the routes of the APIs.
    """

    def __init__(self, options: PageOptions, guard: RequestChecks, gateways: ClientPool[Gateway], api: HttpApi) -> None:
        self._options = options
        self._guard = guard
        self._gateways = gateways
        self._api = api
        self._files = read_files()

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._checked])
        app.on_response_prepare.append(self._guard.sign)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        app.on_response_prepare.append(self._api.sign)
        self._api.add_to(app.router)
        if self._options.page:
            app.router.add_get("/", self._file)
            app.router.add_get("/static/{name}", self._file)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request as one of the APIs, or as one of the page. Probes name an address, and see no content."""
        if request.path in _PROBES:
            return await handler(request)
        if self._api.serves(request.path):
            return await self._api.reply(request, handler)
        return await self._guard.check(request, handler)

    async def _alive(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="alive")

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        """Return whether the service has a snapshot loaded, as `grpc.health.v1` tells."""
        with self._gateways.lease() as gateway:
            ready = await gateway.is_serving(_READY_S)
        return web.Response(text="ready") if ready else web.Response(status=503, text="the service is not ready")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        file: StaticFile | None = self._files.get(request.match_info.get("name", "index.html"))
        if file is None:
            raise web.HTTPNotFound(text="there is no such file")
        return file.response(request)
