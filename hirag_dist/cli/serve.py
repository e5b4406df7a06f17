"""`hirag-dist serve`: the gRPC service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated

import typer

from hirag_dist.cli.options import ConfigOption, IndexOption, SetOption, configuration
from hirag_dist.cli.output import err
from hirag_dist.config import Config
from hirag_dist.config_file import load_prompts
from hirag_dist.index.reader import current_id, open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.query import QueryEngine


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    index: IndexOption,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the snapshot first.")] = False,
) -> None:
    """Serve the current snapshot of an index over gRPC, and each new one as it is published."""
    loaded = configuration(config, settings, {"service.listen": listen}).config
    logging.getLogger("hirag_dist.service").setLevel(logging.INFO)
    if verify:
        open_snapshot(Store(index), full_check=True)
    asyncio.run(run_service(loaded, index, _announce))


async def run_service(config: Config, index: str, ready: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        SnapshotError: nothing to serve.
        BackendUnavailable: the port is in use.
        ConfigError: the address is open to the network without TLS or tokens.
    """
    from hirag_dist.service.holder import EngineHolder
    from hirag_dist.service.options import ServerOptions
    from hirag_dist.service.server import serve as serve_grpc
    from hirag_dist.wiring import make_engine, make_treasury

    store = Store(index)
    prompts = load_prompts(config.prompts)
    treasury = make_treasury(config)  # kept from snapshot to snapshot: a new one would begin with full allowances

    async def open_engine() -> QueryEngine:
        return await asyncio.to_thread(lambda: make_engine(config, open_snapshot(store), prompts, treasury))

    service = config.service
    options = ServerOptions(
        listen=service.listen,
        max_message_bytes=service.max_message_mib << 20,
        max_concurrent=service.max_concurrent,
        drain_s=service.drain_s,
        reflection=service.reflection,
        tls_cert=service.tls_cert,
        tls_key=service.tls_key,
        tls_client_ca=service.tls_client_ca,
        tokens_file=service.tokens_file,
    )
    holder = EngineHolder(open_engine, lambda: current_id(store), service.poll_s)
    await serve_grpc(holder, options, ready)


def _announce(address: str) -> None:
    err.print(f'Serving on {address}. Ask it: hirag-dist query --server {address} "…". Ctrl-C stops it.')
