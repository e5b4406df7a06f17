"""The page in a process of its own. Importing this brings nothing of the engine: the process stays small."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.service.web.options import PageOptions
from hirag_dist.service.web.run import serve_page


@dataclass(frozen=True)
class PageProcess:
    """A page in a process of its own, as `cli.worker` runs it.

    Attributes:
        options: how to listen.
        target: HOST:PORT of the service.
        name: of the process, for its log.
        levels: logger → level; "" is the root.
        debug: whether errors show their traceback.
    """

    options: PageOptions
    target: str
    name: str
    levels: dict[str, int]
    debug: bool

    async def run(self, ready: Callable[[str], None], stop: asyncio.Event) -> None:
        """Serve until a signal, or `stop`; report the service's address, as its workers do."""
        await serve_page(self.options, self.target, lambda url: ready(self.target), stop)
