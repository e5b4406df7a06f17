"""`hirag-dist serve`: the gRPC service."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from hirag_dist.cli.options import ConfigOption, IndexOption, SetOption, configuration
from hirag_dist.cli.output import err
from hirag_dist.cli.serving import for_several, options_of, processes_of, serve_index
from hirag_dist.cli.worker import Work
from hirag_dist.config import Config
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.service.options import split_address
from hirag_dist.service.server import probe
from hirag_dist.service.supervisor import Job, Supervisor, reserve

_LOGGERS = ("", "hirag_dist.service")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    index: IndexOption,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Processes that answer on the port; 0 is one a core.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the snapshot first.")] = False,
) -> None:
    """Serve the current snapshot of an index over gRPC, and each new one as it is published."""
    loaded = configuration(config, settings, {"service.listen": listen, "service.processes": processes}).config
    logging.getLogger("hirag_dist.service").setLevel(logging.INFO)
    if verify:
        open_snapshot(Store(index), full_check=True)
    n_processes = processes_of(loaded)
    if n_processes == 1:
        asyncio.run(serve_index(loaded, index, options_of(loaded.service), _announce))
    elif not serve_with_workers(for_several(loaded), index, n_processes, _announce):
        raise typer.Exit(1)


def serve_with_workers(config: Config, index: str, n_processes: int, ready: Callable[[str], None]) -> bool:
    """Serve from several processes on one port until SIGTERM or SIGINT. Return whether all of them ended well.

    Args:
        config: with vectors that several processes can have.
        ready: called with HOST:PORT once all of them answer.

    Raises:
        ConfigError: the configuration is wrong.
        BackendUnavailable: the address cannot be listened on.
        HiragError: a process could not start.
    """
    host, port = split_address(options_of(config.service).listen)
    probe(host, port)
    with reserve(host, port) as held:
        address = f"[{host}]" if ":" in host else host
        options = options_of(config.service, listen=f"{address}:{held.getsockname()[1]}", shared=True)
        levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        debug = "HIRAG_DEBUG" in os.environ
        jobs = [
            Job(
                command=(sys.executable, "-m", "hirag_dist.cli.worker"),
                work=pickle.dumps(Work(config, index, options, f"worker {number}", levels, debug)),
                environ=dict(os.environ),
                name=f"worker {number}",
            )
            for number in range(1, n_processes + 1)
        ]
        return Supervisor(jobs, drain_s=config.service.drain_s, ready=ready).run()


def _announce(address: str) -> None:
    err.print(f'Serving on {address}. Ask it: hirag-dist query --server {address} "…". Ctrl-C stops it.')
