"""The endpoint as an aiohttp application, and its server."""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from types import TracebackType
from typing import Any

from aiohttp import web

from hirag_dist.errors import BackendUnavailable
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
        self._calls = CallHandlers(options, Answers(reply or reply_to, embedder, structured))

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
        counts = self._calls.counts.get(request.path)
        if counts is not None and request.method == "POST":
            counts.errors += 1
        return json_response(error.body, error.status, headers)


_DRAIN_S = 2.0


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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None


async def run_simulator(options: SimulatorOptions, ready: Callable[[str], None]) -> dict[str, Any]:
    """Serve until SIGINT or SIGTERM.

    Args:
        options: how the endpoint behaves.
        ready: is given the base URL once calls are taken.

    Returns:
        The counts, as GET /stats gives them.

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


class SimulatorThread:
    """A context manager that serves from a thread with a loop of its own, for callers without one.

    Entering gives the base URL; raises BackendUnavailable when the address cannot be listened on.
    """

    def __init__(self, options: SimulatorOptions) -> None:
        self._options = options
        self._thread = threading.Thread(target=self._run, name="simulate-llm", daemon=True)
        self._started = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._failure: Exception | None = None
        self._simulator: Simulator | None = None

    def __enter__(self) -> str:
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self._simulator.base_url if self._simulator else ""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def stats(self) -> dict[str, Any]:
        """Return the counts so far, as GET /stats gives them: every reply that has come is in them."""
        if self._simulator is None or self._loop is None:
            return {}
        if not self._thread.is_alive():
            return self._simulator.endpoint.stats()
        return asyncio.run_coroutine_threadsafe(self._stats(self._simulator), self._loop).result()

    @staticmethod
    async def _stats(simulator: Simulator) -> dict[str, Any]:
        return simulator.endpoint.stats()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with Simulator(self._options) as simulator:
                self._simulator = simulator
                self._started.set()
                await self._stop.wait()
        except Exception as error:  # raised again where the thread was started
            self._failure = error
        finally:
            self._started.set()
