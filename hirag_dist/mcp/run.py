"""Running the MCP server over stdio and over streamable HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import math
import signal
import socket
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import uvicorn
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.mcpserver import MCPServer
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

from hirag_dist.errors import ConfigError, HiragError
from hirag_dist.mcp import Backend, Caller
from hirag_dist.mcp.tools import ServerSettings, make_server, token_of
from hirag_dist.wire.addresses import is_loopback, join_address, split_address
from hirag_dist.wire.error_status import Overloaded, QuotaExceeded, Unauthenticated

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
PATH = "/mcp"
_CLOSE_S = 3  # for streams to end, when the server stops
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Address, host names and security of the server.

    Attributes:
        listen: HOST:PORT; port 0 takes a free one. Beyond loopback it needs TLS and a service that identifies callers.
        names: Further names, HOST or HOST:PORT, by which clients reach it; without a port, that of `listen` and that of
            https.
        tls_cert, tls_key: PEM files of its certificate chain and key.
        identifies: Whether a service decides by each caller's token what the caller may see.

    Raises:
        ConfigError: the address is malformed, TLS is half configured, or the address is open to the network without
            TLS, tokens or a name.
    """

    listen: str
    names: tuple[str, ...] = ()
    tls_cert: str | None = None
    tls_key: str | None = None
    identifies: bool = False

    def __post_init__(self) -> None:
        _ = self.port
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ConfigError("TLS needs both --tls-cert and --tls-key")
        if self.is_open and not self.identifies:
            raise ConfigError(
                f"--http {self.listen} opens the whole index to the network: use --server with a service that has a "
                f"callers file, or listen on 127.0.0.1 without --http-name"
            )
        if self.is_loopback:
            return
        if self.tls_cert is None:
            raise ConfigError(
                f"--http {self.listen} would send tokens over the network in the clear: give --tls-cert and --tls-key, "
                f"or listen on 127.0.0.1 behind a proxy with TLS"
            )
        if not self.names:
            raise ConfigError(f"--http {self.listen} needs --http-name: the host name by which clients reach it")

    @property
    def host(self) -> str:
        """Host of the address, without brackets."""
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        """Port of the address."""
        return split_address(self.listen)[1]

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can reach the address."""
        return is_loopback(self.host)

    @property
    def is_open(self) -> bool:
        """True if other machines reach the server, directly or through a proxy, so that each caller needs a token."""
        return not self.is_loopback or bool(self.names)

    @property
    def scheme(self) -> str:
        """The scheme of its URL."""
        return "http" if self.tls_cert is None else "https"

    def security(self, port: int) -> TransportSecuritySettings:
        """Return the values of the headers Host and Origin that are accepted by a server on a port, and no others.

        With them, no other name can lead here (DNS rebinding), and no page of another server on this machine.
        """
        served = [(self.scheme, name, port) for name in LOOPBACK]
        for name in self.names:
            host, _, named = name.rpartition(":") if name.rpartition(":")[2].isdigit() else (name, "", "")
            ports = (int(named),) if named else (port, _DEFAULT_PORTS["https"])
            served += [("https", host, number) for number in ports]
        hosts = [f"{host}:{number}" for _, host, number in served]
        hosts += [host for scheme, host, number in served if number == _DEFAULT_PORTS[scheme]]
        origins = [f"{scheme}://{host}:{number}" for scheme, host, number in served]
        origins += [f"{scheme}://{host}" for scheme, host, number in served if number == _DEFAULT_PORTS[scheme]]
        return TransportSecuritySettings(allowed_hosts=hosts, allowed_origins=origins)


async def serve_stdio(server: MCPServer[Any]) -> None:
    """Serve one client on stdin and stdout until it closes stdin, or SIGINT or SIGTERM arrives.

    After a signal a thread may still wait for a line of stdin, which nothing can interrupt: end the process then.
    """
    serving = asyncio.create_task(server.run_stdio_async())
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    stopping = asyncio.create_task(stopped.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if serving.done():
        serving.result()


class _CallerMiddleware:
    """Middleware that lets only callers of the service begin a session, and binds it to the token that began it.

    A session takes memory for half an hour, and there is a limit for all of them. The service checks tokens again at
    every call of a tool. A session that another token continues is refused by the SDK, which compares the users.

    Args:
        admit: Raises HiragError for a token, or none, with which no session may begin.
        required: Whether requests without a token are refused here.
    """

    def __init__(self, app: Any, admit: Callable[[str | None], Awaitable[None]], *, required: bool) -> None:
        self._app = app
        self._admit = admit
        self._required = required

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] == PATH:
            headers = Headers(scope=scope)
            token = token_of(headers)
            refusal = await self._refusal(headers, token)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
            if token is not None:
                name = hashlib.sha256(token.encode()).hexdigest()
                scope = scope | {"user": AuthenticatedUser(AccessToken(token=name, client_id=name, scopes=[]))}
        await self._app(scope, receive, send)

    async def _refusal(self, headers: Headers, token: str | None) -> JSONResponse | None:
        """Return the reply to a request that is refused; None for one that is passed on."""
        needed = {"WWW-Authenticate": "Bearer"}
        if token is None and self._required:
            error = "a bearer token is needed: send it in the header Authorization"
            return JSONResponse({"error": error}, 401, needed)
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        has_sessions = version is None or version in HANDSHAKE_PROTOCOL_VERSIONS
        if has_sessions and MCP_SESSION_ID_HEADER not in headers:
            try:
                await self._admit(token)
            except (Unauthenticated, ConfigError) as error:  # the latter of a token that is no line of ASCII characters
                return JSONResponse({"error": str(error)}, 401, needed)
            except (Overloaded, QuotaExceeded) as error:
                wait_s = math.ceil(error.retry_after_s or 1)
                return JSONResponse({"error": str(error)}, 429, {"Retry-After": str(wait_s)})
            except HiragError as error:
                return JSONResponse({"error": str(error)}, 503)
        return None


async def serve_http(
    backend: Backend, settings: ServerSettings, options: HttpOptions, started: Callable[[str], None] = lambda url: None
) -> None:
    """Serve the tools over a backend until SIGINT or SIGTERM.

    Args:
        started: Called with the URL once the server listens.

    Raises:
        ConfigError: the address cannot be used, or the certificate cannot be read.
    """

    async def admit(token: str | None) -> None:
        await backend.admit(Caller(token, settings.timeout_s))

    try:
        listener = _listener(options)
    except OSError as error:
        raise ConfigError(f"--http {options.listen} cannot be used: {error.strerror}") from error
    with listener:
        port = listener.getsockname()[1]
        server = make_server(backend, settings)
        app = server.streamable_http_app(streamable_http_path=PATH, transport_security=options.security(port))
        config = uvicorn.Config(
            _CallerMiddleware(app, admit, required=options.is_open),
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
        url = f"{options.scheme}://{join_address(options.host, port)}{PATH}"
        started(url)  # the socket listens: connections wait for the server
        await _HttpServer(config).serve([listener])


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
    """uvicorn that does not raise a signal again after it has stopped."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop at SIGINT and SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with suppress(NotImplementedError, RuntimeError, ValueError):  # not the main thread
                loop.add_signal_handler(number, self.handle_exit, number, None)
        yield
