"""Start and stop of the page, with the certificate that it shares with the service: in a running loop or a process."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import ssl
from collections.abc import Callable
from types import TracebackType

from aiohttp import web

from hirag_dist.client.common import ClientOptions
from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.service.http_api.gateway import Gateway
from hirag_dist.service.supervisor import stop_signals
from hirag_dist.service.web.app import PageApp, RequestChecks
from hirag_dist.service.web.options import PageOptions, reached_at, url_of
from hirag_dist.wire.addresses import split_address


class BrowserTls:
    """TLS settings towards browsers, renewable while the page is served.

    Attributes:
        context: of the listening socket. Each handshake uses the certificate and authorities of the latest renewal.
    """

    def __init__(self, first: ssl.SSLContext) -> None:
        self.context = self._latest = first
        self.context.sni_callback = self._choose  # called for clients without a server name too

    def renew(self, latest: ssl.SSLContext) -> None:
        """Use another context, of the same kind, for handshakes from now on."""
        self._latest = latest

    def _choose(self, end: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        end.context = self._latest


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


logger = logging.getLogger(__name__)
_IDLE_S = 75.0  # without a request, after which a connection is closed
_MIN_CONNECTIONS = 4  # of the APIs to the service
_REQUESTS_PER_CONNECTION = 64  # the service accepts 100


class Page:
    """An async context manager that serves the page while it is open.

    Args:
        options: how to listen.
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
        self._tls: BrowserTls | None = None
        self._runner: web.AppRunner | None = None
        self._certificates: ReloadingValue[None] | None = None

    async def __aenter__(self) -> Page:
        options = self._options
        host, port = split_address(options.listen)
        self._checks.names |= {host.lower()}
        files = [options.tls_cert, options.tls_key, options.tls_client_ca, options.client_cert, options.client_key]
        self._certificates = ReloadingValue([path for path in files if path], self._connect)
        app = PageApp(options, self._checks, self._gateway).app()
        runner = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,  # a disconnect cancels the request
            keepalive_timeout=_IDLE_S,
            shutdown_timeout=options.drain_s,
        )
        await runner.setup()
        try:
            tls = None if self._tls is None else self._tls.context
            site = web.TCPSite(runner, host, port, ssl_context=tls, reuse_port=options.reuse_port or None)
            await site.start()
        except OSError as error:
            await runner.cleanup()
            await self._gateway.close()
            in_use = error.errno == errno.EADDRINUSE
            why = "the port is in use" if in_use else error.strerror or str(error)
            raise BackendUnavailable(f"the page cannot listen on {options.listen}: {why}; choose another") from error
        self._runner = runner
        self.url = url_of(options, runner.addresses[0][1])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        """Trust the current certificate as that of the service, and present it to browsers.

        Raises:
            ConfigError: the files cannot be used.
        """
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
        if self._tls is None:
            self._tls = BrowserTls(latest)
        else:
            self._tls.renew(latest)
        self._checks.names |= {name.lower() for name in names}


async def serve_page(
    options: PageOptions,
    target: str,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve the page until SIGTERM or SIGINT, then drain requests for at most `drain_s` and return.

    Signals reach the main thread only; elsewhere use `stop`.

    Args:
        options: address, security and limits.
        target: HOST:PORT of the service.
        ready: called with the page's URL once it is served.
        stop: stops the page when set, as a signal does.

    Raises:
        ConfigError: certificates cannot be used.
        BackendUnavailable: the address cannot be listened on.
    """
    stop = asyncio.Event() if stop is None else stop
    with stop_signals(stop):
        async with Page(options, target) as page:
            watching = asyncio.create_task(page.watch())
            try:
                logger.info("the page is at %s", page.url)
                if ready is not None:
                    ready(page.url)
                await stop.wait()
            finally:
                watching.cancel()
