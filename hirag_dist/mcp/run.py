"""Running the MCP server over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator
from concurrent.futures import CancelledError as FutureCancelled
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from mcp.server import Server
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import JSONResponse

from hirag_dist.errors import ConfigError
from hirag_dist.mcp.options import PATH, HttpOptions
from hirag_dist.mcp.server import token_of

logger = logging.getLogger(__name__)
_MAX_LINES = 64  # of stdin that wait
_CLOSE_S = 3  # for streams to end, when the server stops


async def serve_stdio(server: Server[Any]) -> None:
    """Serve one client on stdin and stdout until it closes stdin, or SIGINT or SIGTERM arrives.

    The SDK writes messages to a copy of stdout, and directs stdout itself to stderr: a library that prints cannot
    break the protocol.
    """
    stdin: Any = _StdinLines()
    async with stdio_server(stdin) as (read_stream, write_stream):
        work = server.run(read_stream, write_stream, server.create_initialization_options())
        serving = asyncio.create_task(work)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
                loop.add_signal_handler(number, serving.cancel)
        with suppress(asyncio.CancelledError):
            await serving
        stdin.close()


class _StdinLines:
    """Lines of stdin, read by a daemon thread: a read that blocks delays neither a signal nor the end of the process.

    Meanwhile, stdin itself is the null device.
    """

    def __init__(self) -> None:
        self._file = os.dup(0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(_MAX_LINES)
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def close(self) -> None:
        """End the iteration."""
        while not self._lines.empty():
            self._lines.get_nowait()
        self._lines.put_nowait(None)

    def _read(self) -> None:
        with suppress(RuntimeError, FutureCancelled):  # the loop is closed
            with open(self._file, "rb", closefd=False) as file:
                for line in file:
                    self._put(line.decode("utf-8", "replace"))
            self._put(None)

    def _put(self, line: str | None) -> None:
        waiting = self._lines.put(line)
        try:
            asyncio.run_coroutine_threadsafe(waiting, self._loop).result()
        except RuntimeError:
            waiting.close()
            raise


def http_app(server: Server[Any], options: HttpOptions) -> Any:
    """Return the ASGI application: one path, for clients that the host and origin checks pass."""
    security = TransportSecuritySettings(
        enable_dns_rebinding_protection=True, allowed_hosts=options.hosts, allowed_origins=options.origins
    )
    app = server.streamable_http_app(streamable_http_path=PATH, transport_security=security)
    return _CallerMiddleware(app, required=options.is_open)


class _CallerMiddleware:
    """Middleware that binds a session to the token that began it.

    The service checks tokens, at every call of a tool. A session that another token continues is refused by the SDK,
    which compares the users.

    Args:
        app: ASGI application.
        required: whether requests without a token are refused here.
    """

    def __init__(self, app: Any, *, required: bool) -> None:
        self._app = app
        self._required = required

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            token = token_of(Request(scope))
            if token is None and self._required:
                refusal = JSONResponse(
                    {"error": "a bearer token is needed: send it in the header Authorization"},
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await refusal(scope, receive, send)
                return
            if token is not None:
                name = hashlib.sha256(token.encode()).hexdigest()
                scope = scope | {"user": AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))}
        await self._app(scope, receive, send)


async def serve_http(
    server: Server[Any], options: HttpOptions, started: Callable[[str], None] = lambda url: None
) -> None:
    """Serve until SIGINT or SIGTERM.

    Args:
        server: over a backend.
        options: address and security.
        started: called with the URL once the server listens.

    Raises:
        ConfigError: the address cannot be used, or the certificate cannot be read.
    """
    config = uvicorn.Config(
        http_app(server, options),
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_CLOSE_S,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--tls-cert {options.tls_cert} or --tls-key cannot be used: {error}") from error
    try:
        listener = _listener(options)
    except OSError as error:
        raise ConfigError(f"--http {options.listen} cannot be used: {error.strerror}") from error
    with listener:
        port = listener.getsockname()[1]
        host = f"[{options.host}]" if ":" in options.host else options.host
        scheme = "http" if options.tls_cert is None else "https"
        await _HttpServer(config, lambda: started(f"{scheme}://{host}:{port}{PATH}")).serve([listener])


def _listener(options: HttpOptions) -> socket.socket:
    """Return a socket that listens.

    Its protocol is named: asyncio sends small parts at once (TCP_NODELAY) only where it is, else they wait for 40 ms.
    """
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((options.host, options.port))
        listener.listen()
    except OSError:
        listener.close()
        raise
    return listener


class _HttpServer(uvicorn.Server):
    """uvicorn that reports when it listens, and does not raise a signal again after it has stopped."""

    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._report_start = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        if self.started:
            self._report_start()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop at SIGINT and SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
