"""The process side of the service: ports, health, signals, draining."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection

from hirag_dist.errors import BackendUnavailable
from hirag_dist.service.access_log import AccessLog, RequestRecord
from hirag_dist.service.auth.authentication import Authenticator, guarded_reflection
from hirag_dist.service.auth.caller_registry import Caller, Callers, read_callers
from hirag_dist.service.auth.tls import ServerTls
from hirag_dist.service.caller_quotas import SharedQuotas
from hirag_dist.service.channel_options import channel_options, probe
from hirag_dist.service.file_watch import ReloadingValue
from hirag_dist.service.grpc_handlers import SERVICE_NAME, service_handler
from hirag_dist.service.health import HealthService
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.service.load_shedding import LoadShedder
from hirag_dist.service.metrics import ProcessFacts, process_metrics, timestamp
from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import ServerOptions, split_address
from hirag_dist.service.servicer import QueryServicer
from hirag_dist.service.shared_state import ServiceState
from hirag_dist.service.tracing import make_tracing

_LOG = logging.getLogger(__name__)
_LOOK_S = 1.0


class QueryServer:
    """A listening service. Health says NOT_SERVING until `serving`.

    Args:
        holder: gives the engine; may still be without one.
        options: how to listen.
        station: what it shares with other processes; None shares nothing and holds callers to no limits.

    Raises:
        ConfigError: the TLS or callers files are wrong.
        BackendUnavailable: traces are wanted, and OpenTelemetry is not installed.
    """

    def __init__(self, holder: SnapshotSwapper, options: ServerOptions, station: ServiceState | None = None) -> None:
        self._options = options
        self._holder = holder
        self._station = station
        self._tls = None if options.tls_cert is None else ServerTls(options)
        self._callers: ReloadingValue[Callers] | None = None
        if options.callers_file is not None:
            path = options.callers_file
            self._callers = ReloadingValue([path], lambda: read_callers(path))
        anonymous = Caller(reach=options.anonymous_labels)
        self._gate = Authenticator(self._callers, anonymous, certificates=options.tls_client_ca is not None)
        self._admission = LoadShedder(
            max_retrievals=options.max_concurrent_retrievals,
            max_queue_wait_s=options.max_queue_wait_s,
            max_requests=options.max_concurrent_requests,
            max_answers=options.max_concurrent_answers,
        )
        known = station is not None and options.callers_file is not None
        self._limits = SharedQuotas(station.limits, station.process) if station is not None and known else None
        self._tracing = None
        if options.traces_endpoint is not None:
            self._tracing = make_tracing(options.traces_endpoint, options.traces_ratio)
        self._metrics, self.registry = process_metrics(
            None if station is None else station.folder, several=options.reuse_port
        )
        holder.tell(self._swapped)
        self._loaded_at: float | None = None
        self._facts = ProcessFacts()
        self._mute = False  # whether it was logged that they cannot be written
        self._observers: list[Callable[[RequestRecord], None]] = [
            AccessLog(options.access_log, questions=options.log_questions).write,
            self._metrics.ended,
        ]
        if self._tracing is not None:
            self._observers.append(self._tracing.ended)
        self._servicer = QueryServicer(
            holder,
            self._gate,
            self._admission,
            self._limits,
            self._observers,
            max_message_bytes=options.max_message_bytes,
            send_timeout_s=options.send_timeout_s,
            map_reduce=options.map_reduce,
        )
        self._health = HealthService(("", SERVICE_NAME))
        self._server: grpc.aio.Server | None = None
        self._watchers: list[asyncio.Task[None]] = []

    async def start(self) -> str:
        """Listen. Return HOST:PORT with the real port.

        Raises:
            BackendUnavailable: the address cannot be listened on.
        """
        options = self._options
        host, port = split_address(options.listen)
        probe(host, port, reuse_port=options.reuse_port)
        server = grpc.aio.server(options=channel_options(options))
        server.add_generic_rpc_handlers((service_handler(self._servicer), self._health.handler()))
        if options.reflection:
            names = (SERVICE_NAME, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
            server.add_generic_rpc_handlers((guarded_reflection(names, self._gate, self._observers),))
        address = f"[{host}]" if ":" in host else host
        try:
            if self._tls is None:
                port = server.add_insecure_port(f"{address}:{port}")
            else:
                port = server.add_secure_port(f"{address}:{port}", self._tls.credentials)
        except RuntimeError as error:  # taken between the probe and now
            raise BackendUnavailable(f"{options.listen} cannot be listened on; choose another with --listen") from error
        await server.start()
        self._server = server
        watched: list[ReloadingValue[Any] | None] = [self._callers, None if self._tls is None else self._tls.files]
        self._watchers = [asyncio.create_task(each.watch(options.poll_s)) for each in watched if each is not None]
        self._watchers.append(asyncio.create_task(self._look()))
        return f"{address}:{port}"

    def observe(self, observer: Callable[[RequestRecord], None]) -> None:
        """Tell `observer` of each request when it has ended."""
        self._observers.append(observer)

    async def serving(self) -> None:
        """Tell health checks that there is an engine."""
        self._loaded_at = time.time()
        await self._health.serving()
        self._take_down()

    async def leaving(self) -> None:
        """Tell health checks that the end is near; calls are still answered."""
        await self._health.stopping()
        self._take_down()

    def is_serving(self) -> bool:
        """Whether health checks are told that questions are taken."""
        return self._health.is_serving

    async def stop(self, drain_s: float) -> None:
        """Turn new requests away and let those at work finish, for at most `drain_s` seconds.

        A second call with a smaller value cuts the first one short.
        """
        await self.leaving()
        if self._server is not None:
            if self._admission.present:
                _LOG.info("stopping; %d requests have %g s to finish", self._admission.present, drain_s)
            await self._server.stop(drain_s)
        for watcher in self._watchers:
            watcher.cancel()
        self._watchers.clear()
        if self._limits is not None:
            self._limits.close()
            self._limits = None
        if self._tracing is not None:
            tracing, self._tracing = self._tracing, None
            await asyncio.to_thread(tracing.close)

    async def _look(self) -> None:
        while True:
            self._take_down()
            await asyncio.sleep(_LOOK_S)

    def _take_down(self) -> None:
        """Leave how the process does where the metrics are collected."""
        engine = self._holder.engine
        self._metrics.look(self._admission, engine)
        if self._station is None:
            return
        info, now = None if engine is None else engine.info, datetime.now(UTC)
        callers = None if self._callers is None else self._callers.value
        expiry = None if callers is None else callers.next_expiry(now)
        facts = ProcessFacts(
            snapshot="" if info is None else info.snapshot_id,
            created_at=None if info is None else timestamp(info.created_at),
            loaded_at=self._loaded_at,
            certificate_expires=None if self._tls is None else self._tls.files.value.expires.timestamp(),
            token_expires=None if expiry is None else expiry.timestamp(),
            callers=None if callers is None else len(callers),
            serving=self._health.is_serving,
        )
        if facts == self._facts:
            return
        try:
            facts.write(self._station.folder, self._station.process)
        except OSError as error:  # questions are answered without it; the next look tries again
            if not self._mute:
                _LOG.error("metrics cannot be left in %s: %s", self._station.folder, error)
            self._mute = True
        else:
            self._facts, self._mute = facts, False

    def _swapped(self, ok: bool) -> None:
        self._metrics.swapped(ok)
        if ok:
            self._loaded_at = time.time()


async def serve(
    holder: SnapshotSwapper,
    options: ServerOptions,
    ready: Callable[[str], None] | None = None,
    stop: asyncio.Event | None = None,
    station: ServiceState | None = None,
) -> None:
    """Listen, load the first engine and answer until SIGTERM or SIGINT; then drain, close the engine and return.

    A second signal ends the draining at once. Signals are heard in the main thread only; elsewhere use `stop`.

    Args:
        holder: not started yet.
        options: how to listen.
        ready: called with HOST:PORT once questions are answered.
        stop: ends the service when set, as a signal does.
        station: as `QueryServer`.

    Raises:
        ConfigError: the TLS or callers files are wrong.
        BackendUnavailable: the address cannot be listened on.
        HiragError: the first engine cannot be opened.
    """
    stop = asyncio.Event() if stop is None else stop
    hurry = asyncio.Event()
    server = QueryServer(holder, options, station)
    page: AbstractContextManager[Any] = nullcontext()
    if options.metrics_listen is not None and server.registry is not None:  # else the supervisor has them all
        page = serve_metrics(options.metrics_listen, server.registry, server.is_serving)
    with _signals(stop, hurry), page:
        try:
            # Of a port that is shared the kernel gives each listener its part of the connections, ready or not; one
            # that is not shared is taken first, so that health can be asked and a port in use is known at once.
            if options.reuse_port and not await _unless(stop, asyncio.create_task(holder.start())):
                return
            address = await server.start()
            if options.reuse_port or await _unless(stop, asyncio.create_task(holder.start())):
                await server.serving()
                _LOG.info("listening on %s", address)
                if ready is not None:
                    ready(address)
                await stop.wait()
                if options.drain_delay_s:
                    await server.leaving()
                    await _unless(hurry, asyncio.create_task(asyncio.sleep(options.drain_delay_s)))
        finally:
            draining = asyncio.create_task(server.stop(options.drain_s))
            if not await _unless(hurry, draining, cancel=False):
                await server.stop(0)
                await draining
            await holder.close()


async def _unless(event: asyncio.Event, task: asyncio.Task[None], *, cancel: bool = True) -> bool:
    """Wait for the task, or for the event. Return whether the task ended; what it raised is raised."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
        if cancel and not task.done():
            task.cancel()
            await asyncio.wait({task})
    if task.done() and not task.cancelled():
        await task
        return True
    return False


@contextmanager
def _signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    """Set `stop` at the first SIGTERM or SIGINT, `hurry` at the second."""

    def heard() -> None:
        (hurry if stop.is_set() else stop).set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, heard)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)
