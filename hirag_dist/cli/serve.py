"""`hirag-dist serve`: the gRPC service."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Annotated

import typer

from hirag_dist.cli.options import ConfigOption, IndexOption, SetOption, configuration
from hirag_dist.cli.output import err
from hirag_dist.cli.serving import for_several, options_of, processes_of, serve_index
from hirag_dist.cli.worker import Work
from hirag_dist.config import Config
from hirag_dist.index.reader import open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.service.limits import SharedLimits
from hirag_dist.service.listening import probe
from hirag_dist.service.metrics import FOLDER_VARIABLE, WorkerMetrics
from hirag_dist.service.metrics_http import serve_metrics
from hirag_dist.service.options import split_address
from hirag_dist.service.station import open_station
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
        with open_station(loaded.service.state_dir) as station:
            asyncio.run(serve_index(loaded, index, options_of(loaded), _announce, station=station))
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
    alone = options_of(config)
    host, port = split_address(alone.listen)
    probe(host, port)
    with ExitStack() as held:
        station = held.enter_context(open_station(config.service.state_dir))
        port = held.enter_context(reserve(host, port)).getsockname()[1]
        metrics = WorkerMetrics(station.folder, n_processes)
        if alone.metrics_listen is not None:
            held.enter_context(serve_metrics(alone.metrics_listen, metrics.registry))

        def died(place: int, process_id: int) -> None:
            metrics.died(place, process_id)
            if config.service.callers_file is not None:
                SharedLimits(station.limits, place).close()  # what it had at work is not at work any more

        listen = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        options = options_of(config, listen=listen, shared=True)
        levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        debug = "HIRAG_DEBUG" in os.environ
        environ = os.environ | {FOLDER_VARIABLE: str(station.folder)}

        def job(place: int) -> Job:
            name = f"worker {place + 1}"
            work = Work(config, index, options, station.of(place), name, levels, debug)
            return Job((sys.executable, "-m", "hirag_dist.cli.worker"), pickle.dumps(work), environ, name)

        jobs = [job(place) for place in range(n_processes)]
        return Supervisor(jobs, drain_s=alone.drain_delay_s + alone.drain_s, ready=ready, died=died).run()


def _announce(address: str) -> None:
    err.print(f'Serving on {address}. Ask it: hirag-dist query --server {address} "…". Ctrl-C stops it.')
