"""The endpoint as an aiohttp application."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from aiohttp import web

from hirag_dist.backends.hashing import HashingEmbedder
from hirag_dist.core.tokens import counter
from hirag_dist.errors import RequestRejected
from hirag_dist.extractive import reply_to
from hirag_dist.ports import Embedder
from hirag_dist.simulator import wire
from hirag_dist.simulator.behaviour import Plan, plan_of
from hirag_dist.simulator.limits import Gate, retry_headers
from hirag_dist.simulator.options import SimulatorOptions
from hirag_dist.simulator.wire import ApiError
from hirag_dist.types import Message

CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
MODELS = ("extractive", "hashing")

_LOG = logging.getLogger(__name__)
_MAX_BODY_BYTES = 64 * 1024 * 1024
_MESSAGE_TOKENS, _REPLY_TOKENS = 4, 3  # what OpenAI's chat template adds to a message, and to a call
_OPEN = ("/healthz", "/stats")

Reply = Callable[[Sequence[Message], str | None, int], str]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Counts:
    """What one kind of call came to. `calls` were answered, `rate_limited` got a 429, `errors` another 4xx or 5xx."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    rate_limited: int = 0
    errors: int = 0
    in_flight: int = 0
    most_in_flight: int = 0


class Endpoint:
    """The handlers, and what they remember.

    Args:
        options: how it behaves.
        reply: messages, form and seed → the reply's text.
        embedder: of /v1/embeddings.
        count_tokens: of the usage that is reported.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        options: SimulatorOptions,
        reply: Reply | None = None,
        embedder: Embedder | None = None,
        count_tokens: Callable[[str], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.options = options
        self.counts = {CHAT: Counts(), EMBEDDINGS: Counts()}
        self._reply = reply or reply_to
        self._embedder: Embedder = embedder or HashingEmbedder(dim=options.dim, seed=options.seed)
        # instructions come again with every call, and are counted once
        self._count = lru_cache(maxsize=4096)(count_tokens or counter("o200k_base"))
        self._gate = Gate(options, clock)
        self._attempts: dict[bytes, int] = {}

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY_BYTES)
        app.router.add_post(CHAT, self._chat)
        app.router.add_post(EMBEDDINGS, self._embeddings)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/stats", self._stats)
        app.router.add_get("/healthz", self._healthz)
        return app

    def stats(self) -> dict[str, Any]:
        """Return the counts by path, and their total."""
        by_path = {path: asdict(counts) for path, counts in self.counts.items()}
        total = {name: sum(counts[name] for counts in by_path.values()) for name in asdict(Counts())}
        total["most_in_flight"] = max(counts["most_in_flight"] for counts in by_path.values())
        return {"endpoints": by_path, "total": total}

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check the key; turn errors into the API's, and count them."""
        counts = self.counts.get(request.path) if request.method == "POST" else None
        try:
            self._check_key(request)
            return await handler(request)
        except ApiError as error:
            return self._error(counts, error)
        except web.HTTPNotFound:
            return self._error(counts, ApiError(404, f"Invalid URL ({request.method} {request.path})"))
        except web.HTTPMethodNotAllowed as error:
            allowed = error.headers["Allow"]
            said = f"Not allowed to {request.method} on {request.path} (HINT: use {allowed})."
            return self._error(counts, ApiError(405, said, "method_not_supported"), {"Allow": allowed})
        except web.HTTPException as error:
            return self._error(counts, ApiError(error.status, error.reason))
        except ConnectionError:
            raise  # the caller hung up: nobody is left to answer
        except Exception:
            _LOG.exception("the built-in model failed on %s", request.path)
            said = "The server had an error while processing your request."
            return self._error(counts, ApiError(500, said, kind="server_error"))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        call = wire.read_chat(wire.read_object(raw))
        n_input = sum(self._count(message.content) + _MESSAGE_TOKENS for message in call.messages) + _REPLY_TOKENS
        denied = self._enter(CHAT, n_input)
        if denied is not None:
            return denied
        try:
            started = time.monotonic()
            plan = self._plan(raw)
            text = self._text(call)
            n_output = self._count(text)
            self._gate.charge(n_output)
            await _wait(plan, started)
            counts = self.counts[CHAT]
            counts.calls += 1
            counts.input_tokens += n_input
            counts.output_tokens += n_output
            named = (f"chatcmpl-{self.options.seed}-{counts.calls}", (n_input, n_output), int(time.time()))
            if call.stream:
                return await self._send_events(request, wire.chat_events(call, text, *named))
            return self._json(wire.chat_body(call, text, *named), headers=self._gate.headers())
        finally:
            self._leave(CHAT)

    async def _embeddings(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        call = wire.read_embedding(wire.read_object(raw))
        n_input = sum(map(self._count, call.texts))
        denied = self._enter(EMBEDDINGS, n_input)
        if denied is not None:
            return denied
        try:
            started = time.monotonic()
            plan = self._plan(raw)
            vectors = await self._embedder.embed(call.texts)
            await _wait(plan, started)
            counts = self.counts[EMBEDDINGS]
            counts.calls += 1
            counts.input_tokens += n_input
            return self._json(wire.embedding_body(call, vectors, n_input), headers=self._gate.headers())
        finally:
            self._leave(EMBEDDINGS)

    async def _send_events(self, request: web.Request, events: Iterable[bytes]) -> web.StreamResponse:
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers=headers | self._gate.headers())
        await response.prepare(request)
        for event in events:
            await response.write(event)
        await response.write_eof()
        return response

    async def _models(self, request: web.Request) -> web.StreamResponse:
        owned = {"object": "model", "created": 0, "owned_by": "hirag-dist"}
        return self._json({"object": "list", "data": [{"id": name, **owned} for name in MODELS]})

    async def _stats(self, request: web.Request) -> web.StreamResponse:
        return self._json(self.stats())

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return self._json({"status": "ok"})

    def _text(self, call: wire.ChatCall) -> str:
        if call.schema is not None:
            return wire.dump(wire.instance_of(call.schema)).decode()
        try:
            return self._reply(call.messages, call.form, self.options.seed)
        except RequestRejected as error:
            raise ApiError(400, str(error), "model_cannot") from error

    def _enter(self, path: str, tokens: int) -> web.StreamResponse | None:
        """Let a call in, which then has to `_leave`, or return the 429 that it gets."""
        counts = self.counts[path]
        denied = self._gate.enter(tokens)
        if denied is not None:
            counts.rate_limited += 1
            error = ApiError(429, denied.message, "rate_limit_exceeded", kind=denied.kind)
            return self._json(error.body, 429, self._gate.headers() | retry_headers(denied))
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        return None

    def _leave(self, path: str) -> None:
        self.counts[path].in_flight -= 1
        self._gate.leave()

    def _plan(self, raw: bytes) -> Plan:
        """Return how this attempt at this request goes; attempts that got a 429 were none."""
        key = hashlib.sha256(raw).digest()[:16]
        attempt = self._attempts.get(key, 0)
        self._attempts[key] = attempt + 1
        return plan_of(self.options, key.hex(), attempt)

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

    def _error(self, counts: Counts | None, error: ApiError, headers: dict[str, str] | None = None) -> web.Response:
        if counts:
            counts.errors += 1
        return self._json(error.body, error.status, headers)

    @staticmethod
    def _json(body: object, status: int = 200, headers: dict[str, str] | None = None) -> web.Response:
        return web.Response(body=wire.dump(body), status=status, headers=headers, content_type="application/json")


async def _wait(plan: Plan, started: float) -> None:
    """Wait out the latency of a call; the model's own time counts as part of it."""
    left_s = plan.delay_s - (time.monotonic() - started)
    if left_s > 0:
        await asyncio.sleep(left_s)
