"""The endpoint as an aiohttp application."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import Any

from aiohttp import web

from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator.answering import Answers, Reply, Structured
from hirag_dist.testing.simulator.handlers import CallHandlers, json_response, total
from hirag_dist.testing.simulator.openai_schema import ApiError, server_error
from hirag_dist.testing.simulator.options import SimulatorOptions

MODELS = ("extractive", "hashing")

logger = logging.getLogger(__name__)
_MAX_BODY_BYTES = 64 * 1024 * 1024
_OPEN = ("/healthz", "/stats")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Endpoint:
    """The handlers, and what they remember.

    Args:
        options: how it behaves.
        reply: messages and form → the reply's text.
        embedder: of /v1/embeddings.
        structured: messages and a foreign schema → the reply's text; None replies with the smallest value that fits.
    """

    def __init__(
        self,
        options: SimulatorOptions,
        reply: Reply | None = None,
        embedder: Embedder | None = None,
        structured: Structured | None = None,
    ) -> None:
        self.options = options
        embedder = embedder or HashingEmbedder(dim=options.dim, seed=options.seed)
        answers = Answers(reply or reply_to, embedder, options.prompt_cache, structured)
        self._calls = CallHandlers(options, answers)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY_BYTES)
        for path in self._calls.counts:
            app.router.add_post(path, self._calls.take)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/stats", self._stats)
        app.router.add_get("/healthz", self._healthz)
        app.on_shutdown.append(self._stop)
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

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key; turn errors into the API's, and count them."""
        try:
            self._check_key(request)
            return await handler(request)
        except ApiError as error:
            return self._error(request, error)
        except web.HTTPNotFound:
            return self._error(request, ApiError(404, f"Invalid URL ({request.method} {request.path})"))
        except web.HTTPMethodNotAllowed as error:
            allowed = error.headers["Allow"]
            said = f"Not allowed to {request.method} on {request.path} (HINT: use {allowed})."
            return self._error(request, ApiError(405, said, "method_not_supported"), {"Allow": allowed})
        except web.HTTPException as error:
            return self._error(request, ApiError(error.status, error.reason))
        except ConnectionError:
            return web.Response()  # the caller hung up
        except Exception:
            logger.exception("the built-in model failed on %s", request.path)
            return self._error(request, server_error())

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

    def _error(self, request: web.Request, error: ApiError, headers: dict[str, str] | None = None) -> web.Response:
        counts = self._calls.counts.get(request.path)
        if counts is not None and request.method == "POST":
            counts.errors += 1
        return json_response(error.body, error.status, headers)
