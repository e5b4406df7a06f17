"""`hirag-dist serve`: the gRPC service."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from hirag_dist.cli._options import ConfigOption, IndexOption, SetOption, configuration
from hirag_dist.cli._output import err
from hirag_dist.cli._page import page_options, serve_index_and_page
from hirag_dist.cli._page_process import PageProcess
from hirag_dist.cli._serve import for_several, options_of, processes_of, serve_index
from hirag_dist.cli.worker import WorkerSettings
from hirag_dist.config.model import Config
from hirag_dist.service.caller_quotas import SharedQuotas
from hirag_dist.service.channel_options import probe
from hirag_dist.service.metrics import FOLDER_VARIABLE, WorkerMetrics, any_serving
from hirag_dist.service.metrics_server import serve_metrics
from hirag_dist.service.options import split_address
from hirag_dist.service.shared_state import open_service_state
from hirag_dist.service.supervisor import Supervisor, WorkerJob, reserve
from hirag_dist.service.web.options import url_of
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

_LOGGERS = ("", "hirag_dist.service", "hirag_dist.service.web")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("serve")(serve)


def serve(
    index: IndexOption,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Processes that answer on the port; 0 is one a core.")
    ] = None,
    http: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve a page too, to ask and look at; port 0 takes any.")
    ] = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check every byte of the snapshot first.")] = False,
) -> None:
    """Serve the current snapshot of an index over gRPC, and each new one as it is published."""
    chosen = {"service.listen": listen, "service.processes": processes, "service.http": http}
    loaded = configuration(config, settings, chosen).config
    page = page_options(loaded.service)
    logging.getLogger("hirag_dist.service").setLevel(logging.INFO)
    if verify:
        open_snapshot(Store(index), full_check=True)
    n_processes = processes_of(loaded)
    if n_processes == 1:
        with open_service_state(loaded.service.state_dir) as station:
            if page is None:
                asyncio.run(serve_index(loaded, index, options_of(loaded), _announce, station=station))
            else:
                asyncio.run(serve_index_and_page(loaded, index, options_of(loaded), page, _announce, station))
    elif not serve_with_workers(for_several(loaded), index, n_processes, _announce):
        raise typer.Exit(1)


def serve_with_workers(config: Config, index: str, n_processes: int, ready: Callable[..., None]) -> bool:
    """Serve from several processes on one port until SIGTERM or SIGINT. Return whether all of them ended well.

    Args:
        config: with vectors that several processes can have.
        ready: called with HOST:PORT, and as `url` the page's where there is one, once all of them answer.

    Raises:
        ConfigError: the configuration is wrong.
        BackendUnavailable: the address cannot be listened on.
        HiragError: a process could not start.
    """
    alone = options_of(config)
    with ExitStack() as held:
        listen = _held(held, alone.listen)
        page = page_options(config.service)
        if page is not None:
            page = replace(page, listen=_held(held, page.listen), reuse_port=True)
        station = held.enter_context(open_service_state(config.service.state_dir))
        metrics = WorkerMetrics(station.folder, n_processes)
        if alone.metrics_listen is not None:
            serving = partial(any_serving, station.folder)
            held.enter_context(serve_metrics(alone.metrics_listen, metrics.registry, serving))

        def died(place: int, process_id: int) -> None:
            if place == n_processes:  # the page, which shares nothing
                return
            metrics.died(place, process_id)
            if config.service.callers_file is not None:
                SharedQuotas(station.limits, place).close()  # what it had at work is not at work any more

        options = options_of(config, listen=listen, shared=True)
        levels = {name: logging.getLogger(name).level for name in _LOGGERS}
        debug = "HIRAG_DEBUG" in os.environ
        environ = os.environ | {FOLDER_VARIABLE: str(station.folder)}

        def job(work: WorkerSettings | PageProcess) -> WorkerJob:
            command = (sys.executable, "-m", "hirag_dist.cli.worker")
            return WorkerJob(command, pickle.dumps(work), environ, work.name, aside=isinstance(work, PageProcess))

        jobs = [
            job(WorkerSettings(config, index, options, station.of(place), f"worker {place + 1}", levels, debug))
            for place in range(n_processes)
        ]
        if page is not None:
            jobs.append(job(PageProcess(page, listen, "page", levels, debug)))
        told = ready if page is None else partial(ready, url=url_of(page))
        return Supervisor(jobs, drain_s=alone.drain_delay_s + alone.drain_s, ready=told, died=died).run()


def _held(stack: ExitStack, address: str) -> str:
    """Hold an address for other processes until the stack is left. Return it, with its port where that was 0."""
    host, port = split_address(address)
    probe(host, port)
    held = stack.enter_context(reserve(host, port))
    shown = f"[{host}]" if ":" in host else host
    return f"{shown}:{held.getsockname()[1]}"


def _announce(address: str, url: str | None = None) -> None:
    err.print(f'Serving on {address}. Ask it: hirag-dist query --server {address} "…". Ctrl-C stops it.')
    if url is not None:
        err.print(f"A page to ask and look at: {url}")
