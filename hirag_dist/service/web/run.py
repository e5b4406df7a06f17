"""The HTTP server: the APIs, the static files of the page, the checks before both, its start and its stop.

It runs in a loop or in a process of its own, with the certificate that it shares with the service.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import logging
import math
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib import resources
from urllib.parse import urlsplit

import grpc
from aiohttp import web
from aiohttp.http import HttpProcessingError

from hirag_dist.client.common import ClientOptions
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.service.http_api import openai_routes, rpc_routes
from hirag_dist.service.http_api.gateway import Gateway, StatusError
from hirag_dist.service.options import LOOPBACK_NAMES, PageOptions, reached_at, url_of
from hirag_dist.service.supervisor import finished_before, stop_signals
from hirag_dist.wire.addresses import split_address

logger = logging.getLogger(__name__)

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
_ANY_ORIGIN = "*"
_MAX_AGE_S = "600"  # for which a browser keeps the reply to a preflight
_EXPOSED = "Retry-After, Retry-After-Ms, X-Request-Id, X-Should-Retry"
_DOCUMENT = "/openapi.json"
_PROBES = ("/healthz", "/readyz")
_READY_S = 1.0  # for the gRPC service to say that it is ready
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class RequestChecks:
    """Checks of requests, and the headers of every reply.

    A host name that leads to this machine but is not the server's (DNS rebinding) is refused: for the page, and for the
    APIs where no caller needs a token, so that a program may use any name where every caller does. A program sends no
    Origin header; pages of other sites may call the APIs only from the origins that are named.

    Attributes:
        names: allowed host names in addition to those of loopback; "*." stands for one label.
    """

    def __init__(self, options: PageOptions) -> None:
        self.names = frozenset(name.lower() for name in options.names)
        self._secure = options.tls_cert is not None
        self._callers = options.callers
        self._origins = frozenset(origin.lower().rstrip("/") for origin in options.origins)

    def serves(self, host: str) -> bool:
        """Return whether the name in a Host header is the server's, with any port, since ports may be forwarded."""
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        return name in LOOPBACK_NAMES or name in self.names or f"*.{name.partition('.')[2]}" in self.names

    def fault(self, request: web.Request, *, of_api: bool) -> tuple[int, str] | None:
        """Return the status and the reason for refusing a request, None for one that passes."""
        host = request.headers.get("Host", "")
        if not (of_api and self._callers) and not self.serves(host):
            return 421, f"this service is not {host!r}; the operator can add a name with service.http_names"
        if not of_api:
            return None
        origin = request.headers.get("Origin")
        if origin is None:
            if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                return 403, "a page of another site made this request"
            return None
        if _is_own(origin, host) or self._allows(origin):
            return None
        return (
            403,
            f"pages of {origin!r} may not call this service; the operator can allow it with service.http_origins",
        )

    def headers(self, request: web.Request) -> dict[str, str]:
        """Return the headers by which a browser lets an allowed origin read the reply of an API."""
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
            "Access-Control-Allow-Methods": "GET, POST",
            "Access-Control-Max-Age": _MAX_AGE_S,
        }
        if wanted is not None and "Access-Control-Allow-Origin" in headers:
            headers["Access-Control-Allow-Headers"] = wanted
        return web.Response(status=204, headers=headers)

    async def sign(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add the headers: a signal handler of the application, so that streams have them too."""
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        if self._secure:
            response.headers["Strict-Transport-Security"] = "max-age=31536000"
        if _is_of_api(request.path):
            response.headers.update(self.headers(request))

    def _allows(self, origin: str) -> bool:
        return _ANY_ORIGIN in self._origins or origin.lower() in self._origins


def _is_own(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc.lower() == host.lower()
    except ValueError:  # such as http://[
        return False


def _is_of_api(path: str) -> bool:
    return path == _DOCUMENT or path.startswith((rpc_routes.PREFIX, openai_routes.PREFIX))


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
    """The request handlers."""

    def __init__(self, options: PageOptions, checks: RequestChecks, gateway: Gateway) -> None:
        requests = rpc_routes.ApiRequests(options, gateway)
        self._apis = (rpc_routes.RpcRoutes(requests), openai_routes.OpenAiRoutes(requests))
        self._options = options
        self._checks = checks
        self._gateway = gateway
        self._files = read_files()
        self._openapi = resources.files("hirag_dist.service.http_api").joinpath("openapi.json").read_bytes()

    def app(self) -> web.Application:
        """Return the application."""
        app = web.Application(middlewares=[self._checked])
        app.on_response_prepare.append(self._checks.sign)
        app.router.add_get("/healthz", self._alive)
        app.router.add_get("/readyz", self._ready)
        for api in self._apis:
            api.add_to(app.router)
        app.router.add_get(_DOCUMENT, self._document)
        if self._options.page:
            app.router.add_get("/", self._file)
            app.router.add_get("/static/{name}", self._file)
        return app

    @web.middleware
    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check a request, and pass it on or refuse it. Probes name an address, and see no content."""
        if request.path in _PROBES:
            return await handler(request)
        of_api = _is_of_api(request.path)
        fault = self._checks.fault(request, of_api=of_api)
        if fault is None:
            if of_api and request.method == "OPTIONS":
                return self._checks.preflight(request)
            return await handler(request)
        status, why = fault
        logger.warning("refused %s %.200r from %s: %s", request.method, request.path, request.remote, why)
        if not of_api:
            return web.json_response({"error": {"kind": "Forbidden", "message": why}}, status=status)
        error = StatusError(grpc.StatusCode.PERMISSION_DENIED, why)
        if request.path.startswith(openai_routes.PREFIX):
            return openai_routes.error_response(error, status)
        return rpc_routes.error_response(error, status)

    async def _alive(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="alive")

    async def _ready(self, request: web.Request) -> web.StreamResponse:
        """Return whether the service has a snapshot loaded, as `grpc.health.v1` tells."""
        ready = await self._gateway.is_serving(_READY_S)
        return web.Response(text="ready") if ready else web.Response(status=503, text="the service is not ready")

    async def _document(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=self._openapi, content_type="application/json")

    async def _file(self, request: web.Request) -> web.StreamResponse:
        file: StaticFile | None = self._files.get(request.match_info.get("name", "index.html"))
        if file is None:
            raise web.HTTPNotFound(text="there is no such file")
        return file.response(request)


def server_context(cert: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Return TLS settings towards browsers from the current files.

    Raises:
        ConfigError: a file cannot be read or is not PEM, or key and certificate do not belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, cert, key)
    if client_ca is not None:
        try:
            context.load_verify_locations(client_ca)
        except OSError as error:
            raise ConfigError(f"TLS cannot be set up from {client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
        # A resumed session presents no certificate, so a client of a removed authority could stay connected.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
    return context


def _load(context: ssl.SSLContext, cert: str, key: str) -> None:
    try:
        context.load_cert_chain(cert, key)
    except OSError as error:  # ssl.SSLError is one
        raise ConfigError(f"TLS cannot be set up from {cert} and {key}: {error}") from error


def names_in(cert: str, key: str) -> tuple[str, ...]:
    """Return the host names and addresses of a certificate.

    The standard library parses a certificate only if a peer presents it, so this makes a handshake in memory.

    Raises:
        ConfigError: as `server_context`, or the certificate has expired or is not valid yet.
    """
    presenting = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(presenting, cert, key)
    verifying = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verifying.check_hostname = False
    verifying.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate itself is the trust anchor
    verifying.load_verify_locations(cert)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = presenting.wrap_bio(to_server, to_client, server_side=True)
    client = verifying.wrap_bio(to_client, to_server)
    try:
        for end in (client, server, client, server):  # hello, certificate, its acceptance, and the end
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise ConfigError(f"the certificate {cert} cannot be used: {error}") from error
    found = (client.getpeercert() or {}).get("subjectAltName", ())
    return tuple(str(entry[1]) for entry in found if entry[0] in ("DNS", "IP Address"))


def expected_name(names: tuple[str, ...]) -> str | None:
    """Return a name that a certificate with these names is valid for, None if it has none.

    >>> expected_name(("*.example.org", "127.0.0.1"))
    'page.example.org'
    """
    return next(("page" + name[1:] if name.startswith("*.") else name for name in names), None)


def without_traceback(record: logging.LogRecord) -> bool:
    """Make one line of a record about a request that is not HTTP/1.1, such as a gRPC client's: a filter of loggers.

    A body that is wrong in itself is told to the client alone.
    """
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, web.RequestPayloadError):
        return False
    if isinstance(error, HttpProcessingError):
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        why = error.message.partition("\n")[0].rstrip(":")
        record.args = (record.getMessage(), why)
        record.msg = "%s: it cannot be read as HTTP/1.1 (%s); gRPC clients ask at the port of service.listen"
        record.exc_info = None
    return True


_IDLE_S = 75.0  # without a request, after which a connection is closed
_MIN_CONNECTIONS = 4  # of the APIs to the service
_REQUESTS_PER_CONNECTION = 64  # the service accepts 100


class Page:
    """An async context manager that serves the page while it is open.

    Args:
        target: HOST:PORT of the service; all addresses stand for this machine.

    Attributes:
        url: http://… or https://…, once open.

    Raises:
        ConfigError: on entering, when certificates cannot be used.
        BackendUnavailable: on entering, when the address cannot be listened on.
    """

    def __init__(self, options: PageOptions, target: str) -> None:
        self.url = ""
        self._options = options
        self._target = reached_at(target)
        connections = math.ceil(options.max_api_requests / _REQUESTS_PER_CONNECTION)
        self._gateway = Gateway(max(_MIN_CONNECTIONS, connections))
        self._checks = RequestChecks(options)
        self._tls: ssl.SSLContext | None = None  # of the listening socket
        self._latest_tls: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._certificates: ReloadingValue[None] | None = None

    async def __aenter__(self) -> Page:
        options = self._options
        host, port = split_address(options.listen)
        self._checks.names |= {host.lower()}
        files = [options.tls_cert, options.tls_key, options.tls_client_ca, options.client_cert, options.client_key]
        self._certificates = ReloadingValue([path for path in files if path], self._connect)
        app = PageApp(options, self._checks, self._gateway).app()
        logging.getLogger("aiohttp.server").addFilter(without_traceback)
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,  # a disconnect cancels the request
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=options.drain_s,
        )
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port, ssl_context=self._tls, reuse_port=options.reuse_port or None)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            await self._gateway.close()
            in_use = error.errno == errno.EADDRINUSE
            why = "the port is in use" if in_use else error.strerror or str(error)
            said = f"the page cannot listen on {options.listen}: {why}; choose another with --http"
            raise BackendUnavailable(said) from error
        self._runner = runner
        self.url = url_of(options, runner.addresses[0][1])
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        await self._gateway.close()

    def renew(self) -> bool:
        """Load new certificates if there are any; invalid ones leave the old in use. Return whether there were any."""
        return self._certificates is not None and self._certificates.refresh()

    async def watch(self) -> None:
        """Call `renew` every `poll_s` seconds until cancelled."""
        while True:
            await asyncio.sleep(self._options.poll_s)
            self.renew()  # not in a thread: it replaces the client of requests

    def _connect(self) -> None:
        """Trust the current certificate as that of the service, and present it to browsers."""
        options = self._options
        if options.tls_cert is None or options.tls_key is None:
            self._gateway.connect(ClientOptions(self._target))
            return
        names = names_in(options.tls_cert, options.tls_key)
        latest = server_context(options.tls_cert, options.tls_key, options.tls_client_ca)
        towards = ClientOptions(
            self._target,
            root_certificates=options.tls_cert,
            server_name=expected_name(names),
            certificate=options.client_cert,
            key=options.client_key,
        )
        self._gateway.connect(towards)  # nothing can fail after it
        self._latest_tls = latest
        if self._tls is None:
            self._tls = latest
            self._tls.sni_callback = self._present  # called for clients without a server name too
        self._checks.names |= {name.lower() for name in names}

    def _present(self, end: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        """Use the certificate and the authorities of the latest renewal for a handshake."""
        if self._latest_tls is not None:
            end.context = self._latest_tls


async def serve_page(
    options: PageOptions,
    target: str,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the page until SIGTERM or SIGINT and for `drain_delay_s` after it; then drain requests and return.

    The drain takes `drain_s` at most, and a second signal ends the delay. Signals reach the main thread only; elsewhere
    use `stop`.

    Args:
        target: HOST:PORT of the service.
        ready: called with the page's URL once it is served.
        stop: stops the page when set, as a signal does.

    Raises:
        ConfigError: certificates cannot be used.
        BackendUnavailable: the address cannot be listened on.
    """
    stop = asyncio.Event() if stop is None else stop
    hurry = asyncio.Event()
    with stop_signals(stop, hurry):
        async with Page(options, target) as page:
            watching = asyncio.create_task(page.watch())
            try:
                logger.info("the page is at %s", page.url)
                if ready is not None:
                    ready(page.url)
                await stop.wait()
                await finished_before(hurry, asyncio.create_task(asyncio.sleep(options.drain_delay_s)))
            finally:
                watching.cancel()
