"""Entry point of a worker process of `serve`, started by `service.supervisor`: `python -m` this module."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from hirag_dist.composition.logs import configure_logging
from hirag_dist.errors import HiragError
from hirag_dist.service.web.options import PageOptions

logger = logging.getLogger(__name__)


class WorkerTask(Protocol):
    """The work of a worker process; it is pickled."""

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until a signal arrives or `stop` is set; call `ready` with the service's HOST:PORT.

        Raises:
            HiragError: the service cannot start.
        """
        ...


@dataclass(frozen=True)
class PageTask:
    """The browser page in a process without the engine: the engine's libraries are not imported.

    Attributes:
        options: how the page listens.
        target: HOST:PORT of the service.
    """

    options: PageOptions
    target: str

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until a signal arrives or `stop` is set; report the service's address, as the other workers do."""
        from hirag_dist.service.web.run import serve_page

        await serve_page(self.options, self.target, lambda url: ready(self.target), stop)


@dataclass(frozen=True)
class WorkerProcess:
    """A task and the settings of the process that runs it.

    Attributes:
        task: the work.
        name: name of the process in the log.
        levels: logger → level; "" is the root.
        debug: whether errors show their traceback.
    """

    task: WorkerTask
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


async def _run(task: WorkerTask, ready: Callable[[str], None]) -> None:
    """Run a task; stop it when the supervisor closes standard input."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_input() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            logger.error("the supervisor is gone; stopping")
            stop.set()

    loop.add_reader(0, on_input)
    await task.run(ready, stop)


if __name__ == "__main__":
    main()
