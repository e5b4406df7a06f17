"""The HTTP APIs as a part of the HTTP server: their routes, and the checks before them."""

from __future__ import annotations

import logging
from importlib import resources

import grpc
from aiohttp import web

from hirag_dist.service.http_api import openai_routes, rpc_routes
from hirag_dist.service.http_api.access_checks import AccessChecks
from hirag_dist.service.http_api.openai_routes import OpenAiRoutes
from hirag_dist.service.http_api.requests import ApiRequests
from hirag_dist.service.http_api.rpc_routes import RpcRoutes
from hirag_dist.service.http_api.status_error import StatusError
from hirag_dist.service.web.request_checks import Handler

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
