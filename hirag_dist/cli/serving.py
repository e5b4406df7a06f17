"""What `serve` and its worker processes share: from configuration to a service that listens."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from hirag_dist.config import Config
from hirag_dist.config import Service as ServiceConfig
from hirag_dist.config_file import load_prompts
from hirag_dist.errors import ConfigError
from hirag_dist.index.reader import current_id, open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.query import QueryEngine
from hirag_dist.service.holder import EngineHolder
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.server import serve as serve_grpc
from hirag_dist.wiring import make_engine, make_treasury


def options_of(service: ServiceConfig, *, listen: str | None = None, shared: bool = False) -> ServerOptions:
    """Return how to listen.

    Args:
        listen: instead of the configured address.
        shared: whether other processes listen on the same port.

    Raises:
        ConfigError: as `ServerOptions`.
    """
    labels = service.anonymous_labels
    return ServerOptions(
        listen=listen or service.listen,
        max_message_bytes=service.max_message_mib << 20,
        max_concurrent=service.max_concurrent,
        drain_s=service.drain_s,
        reflection=service.reflection,
        reuse_port=shared,
        tls_cert=service.tls_cert,
        tls_key=service.tls_key,
        tls_client_ca=service.tls_client_ca,
        callers_file=service.callers_file,
        anonymous_labels=None if labels == "all" else frozenset(labels),
        poll_s=service.poll_s,
    )


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


async def serve_index(
    config: Config,
    index: str,
    options: ServerOptions,
    ready: Callable[[str], None],
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT.

    Args:
        ready: called with HOST:PORT once questions are answered.
        stop: ends the service when set, as a signal does.

    Raises:
        SnapshotError: nothing to serve.
        BackendUnavailable: the port is in use.
        ConfigError: the files of TLS or callers are wrong.
    """
    store = Store(index)
    prompts = load_prompts(config.prompts)
    # Kept from snapshot to snapshot: a new one would begin with full allowances.
    treasury = make_treasury(config, sharers=processes_of(config))

    async def open_engine() -> QueryEngine:
        return await asyncio.to_thread(lambda: make_engine(config, open_snapshot(store), prompts, treasury))

    holder = EngineHolder(open_engine, lambda: current_id(store), config.service.poll_s)
    await serve_grpc(holder, options, ready, stop)
