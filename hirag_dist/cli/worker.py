"""One of several serving processes, as `service.supervisor` starts them: not a command for people."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hirag_dist.config.model import Config
from hirag_dist.errors import HiragError
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.shared_state import ServiceState

if TYPE_CHECKING:
    from hirag_dist.cli._page_process import PageProcess


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker serves.

    Attributes:
        config: with the vectors that several processes can have.
        index: the index folder.
        options: how to listen.
        station: what it shares with the others.
        name: of the process, for its log.
        levels: logger → level; "" is the root.
        debug: whether errors show their traceback.
    """

    config: Config
    index: str
    options: ServerOptions
    station: ServiceState
    name: str
    levels: dict[str, int]
    debug: bool

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until a signal, or `stop`; call `ready` with HOST:PORT."""
        from hirag_dist.cli._serve import serve_index

        await serve_index(self.config, self.index, self.options, ready, stop, self.station)


def main() -> None:
    """Serve the work on standard input, report through the descriptor that the last argument names, and exit."""
    from hirag_dist.cli._logs import configure

    work: WorkerSettings | PageProcess = pickle.load(
        sys.stdin.buffer
    )  # from the supervisor alone: nobody else holds the pipe
    configure(work.levels, name=work.name)
    with os.fdopen(int(sys.argv[-1]), "w", encoding="utf-8") as reports:

        def report(**said: object) -> None:
            print(json.dumps(said), file=reports, flush=True)

        try:
            asyncio.run(_serve(work, lambda address: report(ready=address)))
        except HiragError as error:
            report(failed=str(error), exit_code=error.exit_code)
            if work.debug:
                raise
            sys.exit(error.exit_code)


async def _serve(work: WorkerSettings | PageProcess, ready: Callable[[str], None]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def alone() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            logging.getLogger(__name__).error("the supervisor is gone; stopping")
            stop.set()

    loop.add_reader(0, alone)
    await work.run(ready, stop)


if __name__ == "__main__":
    main()
