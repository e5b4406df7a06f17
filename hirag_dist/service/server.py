"""The gRPC server of one process: ports, certificates, health, metrics, drain at shutdown."""

from __future__ import annotations

import asyncio
import gc
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from prometheus_client import CollectorRegistry

from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.execution.tracing import make_provider
from hirag_dist.service.access_log import AccessLog, RequestRecord, Tracing
from hirag_dist.service.callers import Authenticator, Caller, Callers, NoCallers, guarded_reflection, read_callers
from hirag_dist.service.catalogue import IndexCatalogue, IndexSource
from hirag_dist.service.file_watch import Lapse, ReloadingValue
from hirag_dist.service.metrics import CatalogueMetrics, Metrics, timestamp
from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import ServerOptions, channel_options, probe
from hirag_dist.service.request_gate import SERVICE_NAME, CallerQuotas, LoadShedder, RequestGate, service_handler
from hirag_dist.service.servicer import QueryServicer
from hirag_dist.service.supervisor import finished_before, stop_signals
from hirag_dist.wire.addresses import join_address, split_address

_ATTEMPTS = 3


def read_certificates(cert: str, key: str, client_ca: str | None) -> grpc.ServerCertificateConfiguration:
    """Return the content of the files, checked.

    Raises:
        ConfigError: a file cannot be read, is not PEM, or key and certificate do not belong together.
    """
    files = [name for name in (cert, key, client_ca) if name is not None]
    try:
        for _ in range(_ATTEMPTS):
            texts = [Path(name).read_bytes() for name in files]
            check = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            check.load_cert_chain(cert, key)  # ssl loads keys from files only
            if client_ca is not None:
                check.load_verify_locations(client_ca)
            if texts == [Path(name).read_bytes() for name in files]:  # the checked content is the content that was read
                ca = texts[2] if client_ca is not None else None
                return grpc.ssl_server_certificate_configuration([(texts[1], texts[0])], ca)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"TLS cannot be set up from {', '.join(files)}: {error}") from error
    raise ConfigError(f"TLS cannot be set up from {', '.join(files)}: they keep changing")


class ServerTls:
    """TLS credentials of the server. Connections after a renewal get the new certificates; older ones stay open.

    Args:
        options: with `tls_cert` and `tls_key`.

    Raises:
        ConfigError: as `read_certificates`.
    """

    def __init__(self, options: ServerOptions) -> None:
        cert, key, client_ca = str(options.tls_cert), str(options.tls_key), options.tls_client_ca
        paths = [name for name in (cert, key, client_ca) if name is not None]
        self.files = ReloadingValue(paths, lambda: read_certificates(cert, key, client_ca))
        self._presented = self.files.value
        fetch: Any = self._fetch  # the stubs lack that it may return None
        self.credentials: grpc.ServerCredentials = grpc.dynamic_ssl_server_credentials(
            self._presented, fetch, require_client_authentication=client_ca is not None
        )

    def _fetch(self) -> grpc.ServerCertificateConfiguration | None:
        """Return certificates that gRPC does not have yet, else None. Called at each new connection, in any thread."""
        newest = self.files.value
        if newest is self._presented:
            return None
        self._presented = newest
        return newest


logger = logging.getLogger(__name__)
_SAMPLE_S = 1.0  # interval of the gauges
_WATCHES_END_S = 0.2  # after the health is NOT_SERVING, which watches are told first
_STOCK_HEALTH: Any = health.aio.HealthServicer  # the stubs leave out its types


class _HealthServicer(_STOCK_HEALTH):  # type: ignore[misc]
    """The stock servicer, whose watches would never end and so hold up every drain."""

    def __init__(self) -> None:
        super().__init__()
        self.watches_end = asyncio.Event()

    async def Watch(self, request: Any, context: Any) -> None:  # noqa: N802 - the name is the protocol's
        """Send the current status, then every change, until the service stops."""
        await finished_before(self.watches_end, asyncio.create_task(super().Watch(request, context)))


class QueryServer:
    """A listening service. Health is NOT_SERVING until `set_serving` is called.

    Args:
        indexes: those that requests may name; not started yet, or started.

    Raises:
        ConfigError: the TLS or callers files are wrong.
        BackendUnavailable: traces are configured, and OpenTelemetry is not installed.
    """

    def __init__(self, indexes: IndexSource, options: ServerOptions) -> None:
        self._options = options
        self._indexes = indexes
        self._tls = None if options.tls_cert is None else ServerTls(options)
        self._callers: ReloadingValue[Callers] | None = None
        if options.callers_file is not None:
            path = options.callers_file
            lapse = Lapse(NoCallers, Callers(), options.callers_grace_s, "every caller is refused")
            self._callers = ReloadingValue([path], lambda: read_callers(path), lapse=lapse)
        anonymous = Caller(reach=options.anonymous_labels)
        self._authenticator = Authenticator(self._callers, anonymous, certificates=options.tls_client_ca is not None)
        self._shedder = LoadShedder(
            max_retrievals=options.max_concurrent_retrievals,
            max_queue_wait_s=options.max_queue_wait_s,
            max_requests=options.max_concurrent_requests,
            max_answers=options.max_concurrent_answers,
        )
        self._tracing = None
        if options.traces_endpoint is not None:
            self._tracing = Tracing(make_provider(options.traces_endpoint))
        self.registry = None if options.reuse_port else CollectorRegistry()  # of several, the supervisor has the counts
        self._metrics = Metrics(self.registry)
        self._catalogue_metrics: CatalogueMetrics | None = None
        if isinstance(indexes, IndexCatalogue):
            self._catalogue_metrics = CatalogueMetrics(indexes, self.registry)
        indexes.on_swap(self._on_swap)
        self._loaded_at: float | None = None
        self._observers: list[Callable[[RequestRecord], None]] = [self._metrics.count_request]
        if self._catalogue_metrics is not None:
            self._observers.append(self._catalogue_metrics.count_request)
        if self._tracing is not None:
            self._observers.append(self._tracing.export)
        if options.access_log:  # after the traces, since its lines name them
            self._observers.append(AccessLog(questions=options.log_questions).write)
        gate = RequestGate(self._authenticator, self._shedder, CallerQuotas(), self._observers, indexes.check_ready)
        self._servicer = QueryServicer(indexes, gate, self._shedder, options)
        self._health = _HealthServicer()
        self._serving = False
        self._server: grpc.aio.Server | None = None
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Listen, or raise BackendUnavailable. Return HOST:PORT with the real port."""
        options = self._options
        host, port = split_address(options.listen)
        probe(host, port, reuse_port=options.reuse_port)
        server = grpc.aio.server(options=channel_options(options))
        server.add_generic_rpc_handlers((service_handler(self._servicer),))
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        if options.reflection:
            names = (SERVICE_NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
            server.add_generic_rpc_handlers(guarded_reflection(names, self._authenticator, self._observers))
        try:
            if self._tls is None:
                port = server.add_insecure_port(join_address(host, port))
            else:
                port = server.add_secure_port(join_address(host, port), self._tls.credentials)
        except RuntimeError as error:  # taken between the probe and now
            raise BackendUnavailable(f"{options.listen} cannot be listened on; choose another with --listen") from error
        await server.start()
        self._server = server
        watched: list[ReloadingValue[Any] | None] = [self._callers, None if self._tls is None else self._tls.files]
        self._watchers = [asyncio.create_task(each.watch(options.poll_s)) for each in watched if each is not None]
        self._watchers.append(asyncio.create_task(self._sample_metrics()))
        return join_address(host, port)

    def observe(self, observer: Callable[[RequestRecord], None]) -> None:
        """Call `observer` with the record of each request when it has ended."""
        self._observers.append(observer)

    async def set_serving(self) -> None:
        """Set health to SERVING: there is an engine."""
        self._loaded_at = time.time()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)
        self._serving = True
        self._publish_facts()

    async def set_stopping(self) -> None:
        """Set health to NOT_SERVING for good; calls are still answered."""
        self._serving = False
        await self._health.enter_graceful_shutdown()
        self._publish_facts()

    def is_serving(self) -> bool:
        """Return whether health is SERVING."""
        return self._serving

    async def stop(self, drain_s: float) -> None:
        """Reject new requests and drain those in progress, for at most `drain_s` seconds.

        A second call with a smaller value shortens the first one.
        """
        await self.set_stopping()
        if self._server is not None:
            if self._shedder.present:
                logger.info("stopping; %d requests have %g s to finish", self._shedder.present, drain_s)
            asyncio.get_running_loop().call_later(_WATCHES_END_S, self._health.watches_end.set)
            await self._server.stop(drain_s)
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers.clear()
        if self._tracing is not None:
            tracing, self._tracing = self._tracing, None
            await asyncio.to_thread(tracing.close)

    async def _sample_metrics(self) -> None:
        while True:
            self._publish_facts()
            await asyncio.sleep(_SAMPLE_S)

    async def _set_health(self, status: int) -> None:
        for name in ("", SERVICE_NAME):
            await self._health.set(name, status)

    def _publish_facts(self) -> None:
        """Update the gauges."""
        engine = self._indexes.engine
        self._metrics.sample(self._shedder, engine)
        if self._catalogue_metrics is not None:
            self._catalogue_metrics.sample()
        info = None if engine is None else engine.info
        callers = None if self._callers is None else self._callers.value
        expiry = None if callers is None else callers.next_expiry(datetime.now(UTC))
        facts = {
            "created_at": None if info is None else timestamp(info.created_at),
            "loaded_at": self._loaded_at,
            "token_expires": None if expiry is None else expiry.timestamp(),
            "callers": None if callers is None else len(callers),
            "callers_failed": None if self._callers is None else self._callers.failed,
            "serving": self._serving,
        }
        self._metrics.describe("" if info is None else info.snapshot_id, facts)

    def _on_swap(self, ok: bool) -> None:
        self._metrics.count_swap(ok)
        if ok:
            self._loaded_at = time.time()


async def serve(
    indexes: IndexSource,
    options: ServerOptions,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    on_stop: Callable[[], None] = lambda: None,
) -> None:
    """Listen, load the first engine and answer until SIGTERM or SIGINT; then drain, close the engine and return.

    A second signal ends the drain at once. Signals reach the main thread only; elsewhere use `stop`.

    Args:
        indexes: not started yet.
        ready: called with HOST:PORT once queries are answered.
        stop: stops the service when set, as a signal does.
        on_stop: called when the drain begins.

    Raises:
        ConfigError: the TLS or callers files are wrong.
        BackendUnavailable: the address cannot be listened on.
        HiragError: the first engine cannot be opened.
    """
    stop = asyncio.Event() if stop is None else stop
    hurry = asyncio.Event()
    server = QueryServer(indexes, options)
    metrics_endpoint: AbstractContextManager[Any] = nullcontext()
    if options.metrics_listen is not None and server.registry is not None:  # otherwise the supervisor serves them
        metrics_endpoint = serve_metrics(options.metrics_listen, server.registry, server.is_serving)
    with stop_signals(stop, hurry), metrics_endpoint:
        try:
            # The kernel spreads connections over all listeners of a shared port, ready or not, so a process listens
            # only when it has an engine. An unshared port is opened first, so that health can be checked and a port
            # in use is reported at once.
            if options.reuse_port and not await finished_before(stop, asyncio.create_task(indexes.start())):
                return
            address = await server.start()
            if options.reuse_port or await finished_before(stop, asyncio.create_task(indexes.start())):
                await server.set_serving()
                logger.info("listening on %s", address)
                gc.collect()
                gc.freeze()  # a full collection, over all that stays until the end, stops all answers for 0.1 s
                if ready is not None:
                    ready(address)
                await stop.wait()
                if options.drain_delay_s:
                    await server.set_stopping()
                    await finished_before(hurry, asyncio.create_task(asyncio.sleep(options.drain_delay_s)))
        finally:
            on_stop()
            draining = asyncio.create_task(server.stop(options.drain_s))
            if not await finished_before(hurry, draining, cancel=False):
                await server.stop(0)
                await draining
            await indexes.close()
