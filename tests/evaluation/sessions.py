"""Sessions for tests, and a run of units in a process of its own that dies on the way."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.evaluation.session import Session, SessionOptions, open_session
from hirag_dist.evaluation.work_units import WorkUnit
from hirag_dist.protocols import EventListener


@asynccontextmanager
async def session(
    folder: Path | str, listeners: Sequence[EventListener] = (), config: dict[str, Any] | None = None, **order: Any
) -> AsyncIterator[Session]:
    """Open an evaluation in a folder."""
    made = SessionOptions("toy", str(folder), **order)
    async with open_session(made, Config.model_validate(config or {}), Prompts(), listeners) as opened:
        yield opened


def units(items: Sequence[Any]) -> list[WorkUnit[Any]]:
    """A unit for each item."""
    return [WorkUnit(f"u{item}", [item], item) for item in items]


async def _main(folder: Path, n_units: int, n_before_death: int) -> None:
    done = 0

    async def work(item: int) -> dict[str, int]:
        nonlocal done
        with (folder / "tried").open("a") as tried:
            tried.write(f"{item}\n")
        if done == n_before_death:
            os.kill(os.getpid(), signal.SIGKILL)
        done += 1
        return {"square": item * item}

    async with session(folder / "out") as opened:
        await opened.map("square", units(range(n_units)), work, at_once=1)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
