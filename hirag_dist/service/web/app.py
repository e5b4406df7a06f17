"""The HTTP server as an aiohttp application: the APIs, and the static files of the page, which asks through them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib import resources

from aiohttp import web

from hirag_dist.service.http_api.api import HttpApi
from hirag_dist.service.http_api.gateway import Gateway
from hirag_dist.service.web.client_pool import ClientPool
from hirag_dist.service.web.options import PageOptions
from hirag_dist.service.web.request_checks import Handler, RequestChecks

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
