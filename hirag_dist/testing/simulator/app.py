"""The endpoint as an aiohttp application, and its server."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import itertools
import logging
import math
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from aiohttp import web

from hirag_dist.errors import BackendUnavailable
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.protocols import Embedder
from hirag_dist.testing.simulator.openai_schema import (
    Answers,
    ApiError,
    ChatCall,
    EmbeddingCall,
    Reply,
    Structured,
    chat_body,
    chat_events,
    dump,
    server_error,
)
from hirag_dist.testing.simulator.options import (
    CHAT_FAULTS,
    EMBEDDING_FAULTS,
    FAIL,
    HANG,
    MALFORMED,
    TRUNCATE,
    FaultPlan,
    LimitExceeded,
    SimulatedLimits,
    SimulatorOptions,
    damaged,
    plan_of,
    truncated,
)

logger = logging.getLogger(__name__)
CHAT, EMBEDDINGS = "/v1/chat/completions", "/v1/embeddings"
MODELS = ("extractive", "hashing")

_BAD_GATEWAY = (
    b"<html><head><title>502 Bad Gateway</title></head><body><center><h1>502 Bad Gateway</h1></center></body></html>"
)
_MAX_BODY_BYTES = 64 * 1024 * 1024
_DRAIN_S = 2.0
_LOOK_S = 0.05  # how often a call that hangs looks whether its caller is still there


@dataclass(slots=True)
class CallCounts:
    """Counts of one kind of call.

    Attributes:
        calls: answered with 200.
        abandoned: were done, and the caller had hung up; they are in no other count.
        repeats: Answered calls whose request had been answered before: paid twice.
        faults: how many were given, by kind.
        most_in_flight: the highest that in_flight was.
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    rate_limited: int = 0
    errors: int = 0
    abandoned: int = 0
    repeats: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    faults: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CompletedCall:
    """A reply that is ready: its body, or the server-sent events of a stream, and its tokens."""

    parts: tuple[bytes, ...]
    input_tokens: int
    output_tokens: int = 0
    is_stream: bool = False


class Endpoint:
    """The handlers, what they remember and what they count.

    Args:
        reply: messages and form → the reply's text.
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
        self._answers = Answers(reply or reply_to, embedder, structured)
        self._counts = {CHAT: CallCounts(), EMBEDDINGS: CallCounts()}
        self._stopping = asyncio.Event()  # calls that hang end then
        self._gate = SimulatedLimits(options, time.monotonic)
        self._attempts: Counter[bytes] = Counter()  # times that each request was let in
        self._answered: set[bytes] = set()
        self._ids = itertools.count(1)

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._guard], client_max_size=_MAX_BODY_BYTES)
        for path in self._counts:
            app.router.add_post(path, self._take)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/stats", self._stats)
        app.router.add_get("/healthz", self._healthz)
        app.on_shutdown.append(self._stop)
        return app

    def stats(self) -> dict[str, Any]:
        """Return the counts by path, and their sums; of `most_in_flight` the largest."""
        endpoints = {path: asdict(each) for path, each in self._counts.items()}
        every = list(endpoints.values())
        total = {name: sum(each[name] for each in every) for name in every[0] if name != "faults"}
        total["most_in_flight"] = max(each["most_in_flight"] for each in every)
        total["faults"] = dict(sum((Counter(each["faults"]) for each in every), Counter()))
        return {"endpoints": endpoints, "total": total}

    async def _stop(self, app: web.Application) -> None:
        self._stopping.set()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Turn errors into the API's, and count them."""
        try:
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

    def _error(self, request: web.Request, error: ApiError, headers: dict[str, str] | None = None) -> web.Response:
        counts = self._counts.get(request.path)
        if counts is not None and request.method == "POST":
            counts.errors += 1
        return json_response(error.body, error.status, headers)

    async def _take(self, request: web.Request) -> web.StreamResponse:
        """POST to one of the two paths: let a call in, have its reply made, deliver it, as far as its plan goes.

        Raises ApiError 400 for a body that cannot be answered.
        """
        started = time.monotonic()
        counts = self._counts[request.path]
        raw = await request.read()
        key = hashlib.sha256(raw).digest()[:16]
        asked = self._answers.embedding_call(raw) if request.path == EMBEDDINGS else self._answers.chat_call(raw)
        denied = self._gate.enter(asked.input_tokens)
        if denied is not None:
            return self._refused(counts, denied)
        attempt = self._attempts[key]
        self._attempts[key] += 1
        plan = plan_of(self.options, key.hex(), attempt, self._kinds(asked))
        made = None
        with self._let_in(counts):
            if plan.fault is not None:
                counts.faults[plan.fault] = counts.faults.get(plan.fault, 0) + 1
            if plan.fault not in (FAIL, HANG):
                made = await self._made(asked, plan)
                self._gate.charge(made.output_tokens)
            await asyncio.sleep(max(plan.delay_s - (time.monotonic() - started), 0.0))  # the model's time is part of it
            if plan.fault == HANG:
                return await self._hang(request)
        if made is None:
            return self._failed(counts, plan)
        try:
            response = None if await gone(request) else await send(request, made, self._gate.headers())
        except ConnectionError:
            response = None
        if response is None:  # a caller who went while the model worked is one whose reply was in flight
            counts.abandoned += 1
            return web.Response()
        counts.calls += 1
        counts.repeats += key in self._answered
        self._answered.add(key)
        counts.input_tokens += made.input_tokens
        counts.output_tokens += made.output_tokens
        return response

    @staticmethod
    def _kinds(asked: ChatCall | EmbeddingCall) -> frozenset[str]:
        """Return the faults that a call can get."""
        if isinstance(asked, EmbeddingCall):
            return EMBEDDING_FAULTS
        # a foreign schema is a caller's probe of the endpoint's capabilities: it is asked once, and a damaged
        # reply would change how everything after it is asked
        return CHAT_FAULTS if asked.schema is None else CHAT_FAULTS - {MALFORMED, TRUNCATE}

    def _refused(self, counts: CallCounts, denied: LimitExceeded) -> web.Response:
        counts.rate_limited += 1
        headers = self._gate.headers()
        if denied.wait_s is not None and self.options.limit_headers:
            headers["Retry-After"] = str(math.ceil(denied.wait_s))
            headers["retry-after-ms"] = str(math.ceil(denied.wait_s * 1000))
        error = ApiError(429, denied.message, "rate_limit_exceeded", kind=denied.kind)
        return json_response(error.body, 429, headers)

    @contextmanager
    def _let_in(self, counts: CallCounts) -> Iterator[None]:
        counts.in_flight += 1
        counts.most_in_flight = max(counts.most_in_flight, counts.in_flight)
        try:
            yield
        finally:
            counts.in_flight -= 1
            self._gate.leave()

    async def _made(self, asked: ChatCall | EmbeddingCall, plan: FaultPlan) -> CompletedCall:
        """Return the reply, disturbed as planned."""
        if isinstance(asked, EmbeddingCall):
            return CompletedCall((await self._answers.embed(asked),), asked.input_tokens)
        reply = self._answers.answer(asked)
        if plan.fault == TRUNCATE:
            reply = self._answers.resized(truncated(reply, plan.share))
        elif plan.fault == MALFORMED:
            reply = self._answers.resized(damaged(reply, plan.form, plan.share))
        named = (f"chatcmpl-{self.options.seed}-{next(self._ids)}", int(time.time()))
        if asked.stream:
            parts = tuple(chat_events(asked.model, reply, *named, asked.stream_usage))
        else:
            parts = (dump(chat_body(asked.model, reply, *named)),)
        return CompletedCall(parts, reply.input_tokens, reply.output_tokens, asked.stream)

    async def _hang(self, request: web.Request) -> web.StreamResponse:
        """Say nothing until the caller hangs up or the endpoint stops."""
        while not await gone(request) and not self._stopping.is_set():
            # aiohttp tells a handler that the caller went only by cancelling it, which must not happen to others
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._stopping.wait()
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _failed(self, counts: CallCounts, plan: FaultPlan) -> web.Response:
        """Fail as a server does: with an error object, or with a gateway's page; half of the busy ones ask to wait."""
        counts.errors += 1
        headers = self._gate.headers()
        busy = "The engine is currently overloaded, please try again later."
        errors = (
            server_error(),
            ApiError(502, "Bad Gateway", kind="server_error"),
            ApiError(503, busy, kind="server_error"),
            ApiError(529, "Overloaded", kind="overloaded_error"),
        )
        error = errors[int(plan.form * len(errors))]
        if error.status == 502:
            return web.Response(body=_BAD_GATEWAY, status=502, headers=headers, content_type="text/html")
        if error.status in (503, 529) and plan.share < 0.5 and self.options.limit_headers:
            headers["Retry-After"] = "1"
        return json_response(error.body, error.status, headers)


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Return a JSON response."""
    return web.Response(body=dump(body), status=status, headers=headers, content_type="application/json")


async def send(request: web.Request, reply: CompletedCall, headers: Mapping[str, str]) -> web.StreamResponse:
    """Send a reply. Raises ConnectionError when the caller has gone."""
    if reply.is_stream:
        own = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        response = web.StreamResponse(headers={**own, **headers})
        await response.prepare(request)
        for part in reply.parts:
            await response.write(part)
    else:
        response = web.Response(body=reply.parts[0], headers=headers, content_type="application/json")
        await response.prepare(request)
    await response.write_eof()
    return response


async def gone(request: web.Request) -> bool:
    """Return whether the caller has closed the connection, as far as can be known now."""
    for _ in range(2):  # the loop first has to see the end of the connection, then to act on it
        await asyncio.sleep(0)
    return request.transport is None or request.transport.is_closing()


class Simulator:
    """An async context manager that serves while it is open.

    Args:
        options: how the endpoint behaves; `listen` with port 0 takes a free port.
        endpoint: answers; None is the built-in model's.

    Attributes:
        endpoint: the handlers, with their counts.
        base_url: http://host:port/v1, once open.

    Raises:
        BackendUnavailable: on entering, when the address cannot be listened on.
    """

    def __init__(self, options: SimulatorOptions, endpoint: Endpoint | None = None) -> None:
        self.endpoint = endpoint or Endpoint(options)
        self.base_url = ""
        self._options = options
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Simulator:
        host, port = self._options.address()
        runner = web.AppRunner(self.endpoint.app(), access_log=None, shutdown_timeout=_DRAIN_S)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            await runner.cleanup()
            in_use = error.errno == errno.EADDRINUSE
            why = "the port is in use; choose another" if in_use else error.strerror or str(error)
            raise BackendUnavailable(f"simulate-llm cannot listen on {self._options.listen}: {why}") from error
        self._runner = runner
        bound = runner.addresses[0]
        shown = f"[{host}]" if ":" in host else host
        self.base_url = f"http://{shown}:{bound[1]}/v1"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


async def run_simulator(options: SimulatorOptions, ready: Callable[[str], None]) -> dict[str, Any]:
    """Serve until SIGINT or SIGTERM, and return the counts, as GET /stats gives them.

    Args:
        ready: is given the base URL once calls are taken.

    Raises:
        BackendUnavailable: the address cannot be listened on.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    async with Simulator(options) as simulator:
        signals = (signal.SIGINT, signal.SIGTERM)
        for each in signals:
            loop.add_signal_handler(each, stopped.set)
        try:
            ready(simulator.base_url)
            await stopped.wait()
        finally:
            for each in signals:
                loop.remove_signal_handler(each)
        return simulator.endpoint.stats()
