"""The gRPC service, its catalogue and its browser page from a configuration, in one process or several."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hirag_dist.composition.models import ask_windows, make_coordinator
from hirag_dist.composition.query import SharedModels, make_engine
from hirag_dist.composition.serving_process import Task, WorkerProcess, serve_page_process
from hirag_dist.config.model import Config, RetrievalConfig
from hirag_dist.config.service import ServiceConfig, is_index_name
from hirag_dist.errors import ConfigError, SnapshotNotFound, StoreError
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.catalogue import CatalogueLimits, IndexCatalogue, IndexDefinition
from hirag_dist.service.engine import EngineRunner, ThreadEngineRunner
from hirag_dist.service.hot_swap import SingleIndex, SnapshotSwapper, in_daemon_thread
from hirag_dist.service.metrics import FOLDER_VARIABLE, WorkerMetrics
from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import PageOptions, ServerOptions, probe, raise_descriptor_limit, url_of
from hirag_dist.service.server import serve as serve_grpc
from hirag_dist.service.supervisor import STOP_GRACE_S, Supervisor, WorkerJob, exit_within, reserve
from hirag_dist.storage.layout import CURRENT
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.wire.addresses import join_address, split_address

logger = logging.getLogger(__name__)
_SPARE_REQUESTS = 64  # requests to the HTTP server that the service is about to refuse

_INHERITED_LEVELS = ("", "hirag_dist.service", "hirag_dist.service.web")  # loggers whose level workers take over


ReadyCallback = Callable[..., None]  # takes HOST:PORT of the service once it answers, and `url` of a page if any


def serve(config: Config, index: str, ready: ReadyCallback, *, verify: bool = False) -> bool:
    """Serve an index, with the page and the processes that the configuration asks for, until SIGTERM or SIGINT.

    Args:
        index: the index folder; empty for the indexes of `service.catalogue` and `service.indexes`.
        verify: whether every byte of the current snapshot is checked first.

    Returns:
        Whether every worker process ended without an error.

    Raises:
        BackendUnavailable: an address cannot be listened on.
        HiragError: a process could not start, or there is nothing to serve.
    """
    page = page_options(config)
    logging.getLogger("hirag_dist.service").setLevel(logging.INFO)
    raise_descriptor_limit()  # worker processes inherit it
    if verify and index:
        open_snapshot(Store(index), full_check=True)
    if has_catalogue(config.service):
        config = catalogue_config(config, index)
    config = ask_windows(config, ("answer",))
    n_processes = process_count(config)
    if n_processes > 1:
        return serve_with_workers(multi_process_config(config), index, n_processes, ready)
    options = server_options(config)
    on_stop = partial(exit_within, options.drain_s + STOP_GRACE_S)
    if page is None:
        asyncio.run(serve_index(config, index, options, ready, on_stop=on_stop))
    else:
        asyncio.run(serve_index_and_page(config, index, options, page, ready, on_stop))
    return True


def server_options(config: Config, *, shared_listen: str | None = None) -> ServerOptions:
    """Return the options of the gRPC server, which listens at the shared address if there are several."""
    service = config.service
    names = {field.name for field in fields(ServerOptions)}
    options: dict[str, Any] = {key: value for key, value in service if key in names}
    if config.llm.endpoints[config.llm.roles.embed].kind == "openai":
        max_retrievals = 32  # the question's embedding is a remote call
    else:
        max_retrievals = 2 if config.vectors.chosen == "memory" else 8  # few if they compute, more if they wait
    options |= {
        "listen": shared_listen or service.listen,
        "max_concurrent_retrievals": max_retrievals,
        "reuse_port": shared_listen is not None,
        "anonymous_labels": None if service.anonymous_labels == "all" else frozenset(service.anonymous_labels),
        "traces_endpoint": config.traces_endpoint,
    }
    return ServerOptions(**options)


def page_options(config: Config, *, n_processes: int = 1) -> PageOptions | None:
    """Return the options of the HTTP server with the page and the APIs, None where the configuration asks for none."""
    service = config.service
    if service.http is None:
        return None
    return PageOptions(
        listen=service.http,
        names=service.http_names,
        page=service.http_page,
        origins=service.http_origins,
        # more than the service accepts, so that it is the service that refuses and counts a request
        max_api_requests=service.max_concurrent_requests * n_processes + _SPARE_REQUESTS,
        tls_cert=service.tls_cert,
        tls_key=service.tls_key,
        tls_client_ca=service.tls_client_ca,
        client_cert=service.http_client_cert,
        client_key=service.http_client_key,
        callers=service.callers_file is not None,
    )


def process_count(config: Config) -> int:
    """Return the number of processes that answer queries."""
    return config.service.processes or len(os.sched_getaffinity(0))


def multi_process_config(config: Config) -> Config:
    """Return the configuration of one process among several, with their number. Milvus Lite has one owner.

    Raises:
        ConfigError: the configuration names Milvus Lite.
    """
    vectors = config.vectors
    if vectors.backend == "milvus-lite":
        raise ConfigError(
            "vectors.backend milvus-lite belongs to one process: set service.processes to 1, or vectors.backend to "
            "memory or milvus"
        )
    service = config.service.model_copy(update={"processes": process_count(config)})
    vectors = vectors.model_copy(update={"backend": vectors.chosen})
    return config.model_copy(update={"service": service, "vectors": vectors})


async def serve_index(
    config: Config,
    index: str,
    options: ServerOptions,
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
    on_stop: Callable[[], None] = lambda: None,
    *,
    first: bool = True,
) -> None:
    """Serve an index from this process until SIGTERM or SIGINT.

    Args:
        ready: called with HOST:PORT once queries are answered.
        stop: stops the service when set, as a signal does.
        on_stop: called when the drain begins.
        first: whether this process logs what concerns all processes of the service.

    Raises:
        SnapshotError: there is no snapshot to serve.
        BackendUnavailable: the port is in use.
        ConfigError: the TLS or callers files are wrong.
    """
    if not index:
        await serve_grpc(make_catalogue(config, process_count(config)), options, ready, stop, on_stop)
        return
    store = Store(index)
    prompts = load_prompts(config.prompts)
    # One coordinator for all snapshots of this process: a new one would start with full rate limits.
    coordinator = make_coordinator(config, sharers=process_count(config))
    anonymous = options.callers_file is None and options.anonymous_labels is not None
    opened = False
    warn = anonymous and first

    def make() -> QueryEngine:
        nonlocal warn, opened
        snapshot = open_snapshot(store) if opened else open_current(store)  # later the served one stays in its place
        opened = True
        if warn and snapshot.has_labels:
            warn = False
            logger.warning(
                "documents carry labels, and there is no service.callers_file: callers see those without labels%s; "
                "service.anonymous_labels says what they may see",
                "".join(f", {label}" for label in sorted(options.anonymous_labels or ())),
            )
        return make_engine(config, snapshot, prompts, coordinator)

    async def open_engine() -> QueryEngine:
        return await in_daemon_thread(make, lambda engine: asyncio.run(engine.close()))

    swapper = SnapshotSwapper(open_engine, lambda: served_id(store), options.poll_s, ThreadEngineRunner())
    await serve_grpc(SingleIndex(swapper), options, ready, stop, on_stop)


def served_id(store: Store) -> str:
    """Return the id of the current snapshot of an index that is served; "" where `current` is damaged.

    Raises:
        SnapshotNotFound: `current` is gone, and with it perhaps the whole index.
    """
    found = current_id(store)
    if found is None:
        raise SnapshotNotFound(f"{store.uri}/{CURRENT} is gone; put it back, or write the id of a snapshot into it")
    return found


async def serve_index_and_page(
    config: Config,
    index: str,
    options: ServerOptions,
    page: PageOptions,
    ready: ReadyCallback,
    on_stop: Callable[[], None],
) -> None:
    """Serve an index and its page from this process until SIGTERM or SIGINT, with the arguments of `serve_index`."""
    from hirag_dist.service.web.run import Page

    stop, listening = asyncio.Event(), asyncio.get_running_loop().create_future()
    service = asyncio.create_task(serve_index(config, index, options, listening.set_result, stop, on_stop))
    await asyncio.wait({service, listening}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if not service.done():
            address = listening.result()
            async with Page(page, address) as served:
                watcher = asyncio.create_task(served.watch())
                ready(address, served.url)
                await asyncio.wait({service})  # the service handles the signals and drains the page's requests
                watcher.cancel()
    finally:
        stop.set()
        await service


def serve_with_workers(config: Config, index: str, n_processes: int, ready: ReadyCallback) -> bool:
    """Serve an index from several processes on one port until SIGTERM or SIGINT.

    Args:
        config: as `multi_process_config` returns it.
        ready: called with HOST:PORT, and the page's URL if there is a page, once all processes answer.

    It returns and raises what `serve` does.
    """
    configured = server_options(config)
    with ExitStack() as stack:
        listen = _reserve(stack, configured.listen)
        page = page_options(config, n_processes=n_processes)
        if page is not None:
            shared = _reserve(stack, page.listen, "--http")
            delay_s, drain_s = configured.drain_delay_s, configured.drain_s
            page = replace(page, listen=shared, reuse_port=True, drain_delay_s=delay_s, drain_s=drain_s)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hirag-serve-")))
        metrics = WorkerMetrics(folder, n_processes)
        options = server_options(config, shared_listen=listen)
        on_stop = partial(exit_within, options.drain_s + STOP_GRACE_S)  # the supervisor may have died
        serve_one = partial(serve_index, config, index, options, on_stop=on_stop)
        jobs = [_worker_job(f"worker {at + 1}", partial(serve_one, first=at == 0), folder) for at in range(n_processes)]
        if page is not None:
            jobs.append(_worker_job("page", partial(serve_page_process, page, listen), folder, required=False))
        supervisor = Supervisor(
            jobs,
            drain_s=configured.drain_delay_s + configured.drain_s,
            ready=ready if page is None else partial(ready, url=url_of(page)),
            on_death=metrics.count_death,
        )
        if configured.metrics_listen is not None:
            stack.enter_context(serve_metrics(configured.metrics_listen, metrics.registry, supervisor.is_ready))
        return asyncio.run(supervisor.run())


def _worker_job(name: str, task: Task, folder: Path, *, required: bool = True) -> WorkerJob:
    levels = {logger_name: logging.getLogger(logger_name).level for logger_name in _INHERITED_LEVELS}
    process = WorkerProcess(task, name, levels, debug="HIRAG_DEBUG" in os.environ)
    command = (sys.executable, "-m", "hirag_dist.composition.serving_process")
    environ = os.environ | {FOLDER_VARIABLE: str(folder)}
    return WorkerJob(command, pickle.dumps(process), environ, name, required)


def _reserve(stack: ExitStack, address: str, option: str = "--listen") -> str:
    """Reserve an address for worker processes until the stack is closed. Return it with its real port."""
    host, port = split_address(address)
    probe(host, port, option=option)
    reserved = stack.enter_context(reserve(host, port, option))
    return join_address(host, reserved.getsockname()[1])


_NEVER_S = 86_400.0  # the catalogue checks the snapshots


def has_catalogue(service: ServiceConfig) -> bool:
    """Return whether a service has indexes by name."""
    return service.catalogue is not None or bool(service.indexes)


def catalogue_config(config: Config, index: str = "") -> Config:
    """Return the configuration of a service with many indexes.

    Milvus Lite, which has a process of its own for each index, is never chosen.

    Args:
        index: the only index that is asked for; empty for a catalogue.

    Raises:
        ConfigError: the configuration contradicts a catalogue.
    """
    service, vectors = config.service, config.vectors
    if index:
        raise ConfigError("give either one index, or service.catalogue and service.indexes; not both")
    if vectors.backend == "milvus-lite":
        raise ConfigError("vectors.backend milvus-lite is for one index: set it to memory or milvus")
    for name, settings in service.indexes.items():
        if not is_index_name(name):
            raise ConfigError(
                f"service.indexes.{name}: a name has up to 63 letters, digits and . _ -, a letter or digit first"
            )
        if settings.uri is None and service.catalogue is None:
            raise ConfigError(f"service.indexes.{name}.uri is missing, and there is no service.catalogue")
        index_retrieval(config, name)
    chosen = vectors.model_copy(update={"backend": vectors.chosen})
    return config.model_copy(update={"vectors": chosen})


def index_retrieval(config: Config, name: str) -> RetrievalConfig:
    """Return the section `retrieval` of an index.

    Raises:
        ConfigError: one of its own keys is unknown, or out of bounds.
    """
    settings = config.service.indexes.get(name)
    if settings is None or not settings.retrieval:
        return config.retrieval
    try:
        return RetrievalConfig.model_validate(config.retrieval.model_dump() | settings.retrieval)
    except ValidationError as error:
        faults = error.errors(include_url=False, include_input=False)
        where = f"service.indexes.{name}.retrieval"
        raise ConfigError("; ".join(f"{where}.{fault['loc'][-1]}: {fault['msg']}" for fault in faults)) from None


class CatalogueListing:
    """Lists the indexes: sub-folders of `service.catalogue` that hold a published index, and `service.indexes`."""

    def __init__(self, service: ServiceConfig) -> None:
        self._service = service
        self._store = None if service.catalogue is None else Store(service.catalogue)
        self._published: frozenset[str] = frozenset()  # names that had an index at the last listing

    def __call__(self) -> Mapping[str, IndexDefinition]:
        """Return the indexes by name.

        Raises:
            StoreError: the folder cannot be read.
        """
        found: dict[str, IndexDefinition] = {}
        store = self._store
        if store is not None:
            if store.local is not None and not store.local.is_dir():  # a missing mount must not remove every index
                raise StoreError(f"service.catalogue {store.uri} is no folder")
            names = frozenset(filter(is_index_name, store.names("")))
            # On an object store a check is a request, so only new names are checked.
            known = self._published if store.local is None else frozenset[str]()
            published = {name for name in names if name in known or store.exists(f"{name}/{CURRENT}")}
            self._published = frozenset(published)
            root = str(self._service.catalogue).rstrip("/")
            found = {name: IndexDefinition(name, f"{root}/{name}") for name in published}
        for name, settings in self._service.indexes.items():
            uri = found[name].uri if settings.uri is None and name in found else settings.uri
            if uri is not None:
                found[name] = IndexDefinition(name, uri, settings.title)
        return found


def make_catalogue(config: Config, sharers: int = 1) -> IndexCatalogue:
    """Return the catalogue of a configuration, not started, for one of several processes that divide the limits.

    Models, prompts, tokenizer and rate limits are shared by all its indexes; caches are not.
    """
    service = config.service
    models = SharedModels(config, make_coordinator(config, sharers=sharers), n_engines=service.max_open_indexes)
    prompts = load_prompts(config.prompts)

    def make(definition: IndexDefinition, store: Store, *, again: bool = False) -> QueryEngine:
        own = config.model_copy(update={"retrieval": index_retrieval(config, definition.name)})
        snapshot = open_snapshot(store) if again else open_current(store)  # later the served one stays
        return make_engine(own, snapshot, prompts, models=models)

    def discard(engine: QueryEngine) -> None:
        asyncio.run(engine.close())

    def make_swapper(definition: IndexDefinition, runner: EngineRunner) -> SnapshotSwapper:
        store = Store(definition.uri)
        opened = False

        async def open_engine() -> QueryEngine:
            nonlocal opened
            again, opened = opened, True
            return await in_daemon_thread(lambda: make(definition, store, again=again), discard)

        settings = service.indexes.get(definition.name)
        is_listed = settings is None or settings.uri is None  # then a listing notices that it is gone
        find = current_id if is_listed else served_id
        return SnapshotSwapper(open_engine, lambda: find(store), _NEVER_S, runner, definition.name)

    async def open_once(definition: IndexDefinition) -> None:
        engine = await in_daemon_thread(lambda: make(definition, Store(definition.uri)), discard)
        await engine.close()

    smaller = min(service.max_concurrent_requests, service.max_concurrent_answers)
    limits = CatalogueLimits(
        max_open=service.max_open_indexes,
        max_concurrent=max(smaller // 2, 1),  # one index leaves room for the others
    )
    runner = ThreadEngineRunner()
    return IndexCatalogue(
        CatalogueListing(service),
        make_swapper,
        limits,
        runner,
        service.default_index,
        close_models=models.close,
        open_once=open_once,
    )
