"""Entry point of a worker process of `serve`, started by `service.supervisor`: `python -m` this module."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from hirag_dist.composition.logs import configure_logging
from hirag_dist.errors import HiragError
from hirag_dist.service.options import PageOptions

logger = logging.getLogger(__name__)


Task = Callable[[Callable[[str], None], asyncio.Event], Awaitable[None]]
"""The work of a worker process; it is pickled. Takes `ready`, called with HOST:PORT of the service, and `stop`."""


async def serve_page_process(
    options: PageOptions, target: str, ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve the browser page in a process without the engine, whose libraries are not imported.

    It is the address of the service that is reported, as by the other workers.
    """
    from hirag_dist.service.web.run import serve_page

    await serve_page(options, target, lambda url: ready(target), stop)


@dataclass(frozen=True)
class WorkerProcess:
    """A task and the settings of the process that runs it.

    Attributes:
        levels: logger → level; "" is the root.
        debug: whether errors show their traceback.
    """

    task: Task
    name: str
    levels: dict[str, int]
    debug: bool


def main() -> None:
    """Run the process that is pickled on standard input; report on standard output."""
    process: WorkerProcess = pickle.load(sys.stdin.buffer)  # only the supervisor writes to this pipe
    configure_logging(process.levels, name=process.name)

    def report(**fields: object) -> None:
        print(json.dumps(fields), flush=True)  # noqa: T201 - the supervisor reads it

    try:
        asyncio.run(_run(process.task, lambda address: report(ready=address)))
    except HiragError as error:
        report(failed=str(error), exit_code=error.exit_code)
        if process.debug:
            raise
        sys.exit(error.exit_code)


async def _run(task: Task, ready: Callable[[str], None]) -> None:
    """Run a task; stop it when the supervisor closes standard input."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            logger.error("the supervisor is gone; stopping")
            stop.set()

    loop.add_reader(0, on_input)
    await task(ready, stop)


if __name__ == "__main__":
    main()
