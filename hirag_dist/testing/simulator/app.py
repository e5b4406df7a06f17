"""The endpoint as an aiohttp application."""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator.answering import Answers, Reply, Structured
from hirag_dist.testing.simulator.call_log import CallLog, LoggedCall
from hirag_dist.testing.simulator.handlers import CallHandlers
from hirag_dist.testing.simulator.openai_schema import ApiError, server_error
from hirag_dist.testing.simulator.options import SimulatorOptions
from hirag_dist.testing.simulator.responses import json_response
from hirag_dist.testing.simulator.stats import total

MODELS = ("extractive", "hashing")

logger = logging.getLogger(__name__)
_MAX_BODY_BYTES = 64 * 1024 * 1024
_OPEN = ("/healthz", "/stats")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handlers, and what they remember.

    Args:
        options: how it behaves.
        reply: messages, form and seed → the reply's text.
        embedder: of /v1/embeddings.
        structured: messages and a foreign schema → the reply's text; None replies with the smallest value that fits.

    Raises:
        ConfigError: the log cannot be written.
    """

    def __init__(
        self,
        options: SimulatorOptions,
        reply: Reply | None = None,
        embedder: Embedder | None = None,
        structured: Structured | None = None,
    ) -> None:
        self.options = options
        self._log = CallLog(options.log)
        embedder = embedder or HashingEmbedder(dim=options.dim, seed=options.seed)
        answers = Answers(reply or reply_to, embedder, options.seed, options.prompt_cache, structured)
        self._calls = CallHandlers(options, answers)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY_BYTES)
        for path in self._calls.counts:
            app.router.add_post(path, self._metered)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/stats", self._stats)
        app.router.add_get("/healthz", self._healthz)
        app.on_shutdown.append(self._stop)
        app.cleanup_ctx.append(self._lifetime)
        return app

    def stats(self) -> dict[str, Any]:
        """Return the counts by path and their total."""
        counts = self._calls.counts
        return {
            "endpoints": {path: asdict(each) for path, each in counts.items()},
            "total": total(counts.values()),
        }

    async def _stop(self, app: web.Application) -> None:
        self._calls.stopping.set()

    async def _lifetime(self, app: web.Application) -> AsyncIterator[None]:
        yield
        self._log.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "POST" and request.path in self._calls.counts:
            return await handler(request)  # `_metered`, which guards itself
        return await self._guarded(request, handler, None)

    async def _metered(self, request: web.Request) -> web.StreamResponse:
        """Take a call that is counted and written down."""
        visit = LoggedCall(request.path, started=time.monotonic())
        try:
            return await self._guarded(request, lambda request: self._calls.take(request, visit), visit)
        finally:
            self._log.add(visit)

    async def _guarded(self, request: web.Request, handler: Handler, visit: LoggedCall | None) -> web.StreamResponse:
        """Check the key; turn errors into the API's, and count them."""
        try:
            self._check_key(request)
            return await handler(request)
        except ApiError as error:
            return self._error(visit, error)
        except web.HTTPNotFound:
            return self._error(visit, ApiError(404, f"Invalid URL ({request.method} {request.path})"))
        except web.HTTPMethodNotAllowed as error:
            allowed = error.headers["Allow"]
            said = f"Not allowed to {request.method} on {request.path} (HINT: use {allowed})."
            return self._error(visit, ApiError(405, said, "method_not_supported"), {"Allow": allowed})
        except web.HTTPException as error:
            return self._error(visit, ApiError(error.status, error.reason))
        except ConnectionError:
            return web.Response()  # the caller hung up
        except Exception:
            logger.exception("the built-in model failed on %s", request.path)
            return self._error(visit, server_error())

    async def _models(self, request: web.Request) -> web.StreamResponse:
        owned = {"object": "model", "created": 0, "owned_by": "hirag-dist"}
        return json_response({"object": "list", "data": [{"id": name, **owned} for name in MODELS]})

    async def _stats(self, request: web.Request) -> web.StreamResponse:
        return json_response(self.stats())

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return json_response({"status": "ok"})

    def _check_key(self, request: web.Request) -> None:
        wanted = self.options.api_key
        if wanted is None or request.path in _OPEN:
            return
        sent = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not sent:
            said = "You didn't provide an API key. Send it in an Authorization header: Bearer YOUR_KEY."
            raise ApiError(401, said)
        if not hmac.compare_digest(sent.encode(), wanted.encode()):
            raise ApiError(401, f"Incorrect API key provided: {sent[:3]}***.", "invalid_api_key")

    def _error(self, visit: LoggedCall | None, error: ApiError, headers: dict[str, str] | None = None) -> web.Response:
        if visit is not None:
            visit.status = error.status
            self._calls.counts[visit.path].errors += 1
        return json_response(error.body, error.status, headers)
