"""What `serve` and its worker processes share: from configuration to a service that listens."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable

import pyarrow.compute as pc

from hirag_dist.cli._logs import bare
from hirag_dist.composition.models import make_treasury
from hirag_dist.composition.query import make_engine
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.access_log import LOGGER
from hirag_dist.service.background_open import in_daemon_thread
from hirag_dist.service.engine_thread import ThreadEngineRunner
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.server import serve as serve_grpc
from hirag_dist.service.shared_state import ServiceState
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

_LOG = logging.getLogger(__name__)


def options_of(config: Config, *, listen: str | None = None, shared: bool = False) -> ServerOptions:
    """Return how to listen.

    Args:
        listen: instead of the configured address.
        shared: whether other processes listen on the same port.

    Raises:
        ConfigError: as `ServerOptions`.
    """
    service = config.service
    labels = service.anonymous_labels
    return ServerOptions(
        listen=listen or service.listen,
        max_message_bytes=service.max_message_mib << 20,
        places=service.concurrency or _places(config),
        max_wait_s=service.max_wait_s,
        max_answers=service.max_answers,
        map_reduce=service.map_reduce,
        max_concurrent=service.max_concurrent,
        send_timeout_s=service.send_timeout_s,
        keepalive_s=service.keepalive_s,
        max_connection_age_s=service.max_connection_age_s,
        max_connection_age_grace_s=service.max_connection_age_grace_s,
        drain_delay_s=service.drain_delay_s,
        drain_s=service.drain_s,
        reflection=service.reflection,
        reuse_port=shared,
        tls_cert=service.tls_cert,
        tls_key=service.tls_key,
        tls_client_ca=service.tls_client_ca,
        callers_file=service.callers_file,
        anonymous_labels=None if labels == "all" else frozenset(labels),
        poll_s=service.poll_s,
        metrics_listen=service.metrics_listen,
        metrics_public=service.metrics_public,
        access_log=service.access_log,
        log_questions=service.log_questions,
        traces_endpoint=service.traces_endpoint,
        traces_ratio=service.traces_ratio,
    )


def _places(config: Config) -> int:
    """Return how many retrievals a process works at: few where they compute, more where they wait for others."""
    if config.llm.endpoints[config.llm.roles.embed].kind == "openai":
        return 32  # the question's embedding is a call
    return 2 if config.vectors.backend == "memory" else 8


def processes_of(config: Config) -> int:
    """Return how many processes answer."""
    return config.service.processes or len(os.sched_getaffinity(0))


def for_several(config: Config) -> Config:
    """Return the configuration of one process among several: Milvus Lite is owned by one, so `auto` is not it.

    Raises:
        ConfigError: Milvus Lite was asked for by name.
    """
    vectors = config.vectors
    if vectors.backend == "milvus-lite":
        raise ConfigError(
            "vectors.backend milvus-lite belongs to one process: set service.processes to 1, or vectors.backend to "
            "memory or milvus"
        )
    if vectors.backend != "auto":
        return config
    chosen = vectors.model_copy(update={"backend": "milvus" if vectors.uri else "memory"})
    return config.model_copy(update={"vectors": chosen})


def _labelled(snapshot: Snapshot) -> bool:
    """Whether any document of a snapshot carries a label."""
    lengths = pc.list_value_length(snapshot.table("documents", ["labels"])["labels"])
    return bool((pc.max(lengths).as_py() or 0) > 0)


async def serve_index(
    config: Config,
    index: str,
    options: ServerOptions,
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
    station: ServiceState | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        ready: called with HOST:PORT once questions are answered.
        stop: ends the service when set, as a signal does.
        station: what it shares with other processes.

    Raises:
        SnapshotError: nothing to serve.
        BackendUnavailable: the port is in use.
        ConfigError: the files of TLS or callers are wrong.
    """
    if options.access_log == "json":
        bare(LOGGER)
    store = Store(index)
    prompts = load_prompts(config.prompts)
    # Kept from snapshot to snapshot: a new one would begin with full allowances.
    treasury = make_treasury(config, sharers=processes_of(config))

    anonymous = options.callers_file is None and options.anonymous_labels is not None
    warned = not anonymous or (station is not None and station.process > 0)  # one of several processes says it

    def make() -> QueryEngine:
        nonlocal warned
        snapshot = open_snapshot(store)
        if not warned and _labelled(snapshot):
            warned = True
            _LOG.warning(
                "documents carry labels, and there is no service.callers_file: callers see those without labels%s; "
                "service.anonymous_labels says what they may see",
                "".join(f", {label}" for label in sorted(options.anonymous_labels or ())),
            )
        return make_engine(config, snapshot, prompts, treasury)

    async def open_engine() -> QueryEngine:
        return await in_daemon_thread(make, lambda engine: asyncio.run(engine.close()))

    holder = SnapshotSwapper(open_engine, lambda: current_id(store), config.service.poll_s, ThreadEngineRunner())
    await serve_grpc(holder, options, ready, stop, station)
