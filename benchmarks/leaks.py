"""Does a service that runs for long stay as it is? Memory, files and threads over many retrievals and hot swaps.

Asks a service in a process of its own with several callers while another snapshot goes live again and again, and looks
at it after each swap, and after each batch of questions. Prints one JSON line with the series and their growth from
the first quarter to the last, and fails where files, threads or mapped files grow, memory by more than it may, or a
question failed.

    python benchmarks/leaks.py [--retrievals 20000] [--swaps 50] [--entities 10000] [--processes 1]

With the defaults it takes some four minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generated import generate, questions, variant
from benchmarks.processes import memory_of, open_files, threads
from benchmarks.served import Served, served
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import HiragError
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import Query

CALLERS = 8
LOOKS = 40  # during the retrievals
SETTLING_S = 1.0  # from the first answer of a new snapshot until the previous one must have been closed
SWAPPING_S = 30.0
ENOUGH_GROWTH_MB = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--retrievals", type=int, default=20_000)
    parser.add_argument("--swaps", type=int, default=50)
    parser.add_argument("--entities", type=int, default=10_000, help="of the generated index")
    parser.add_argument("--processes", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        first = generate(store, arguments.entities).snapshot_id
        second = variant(store, first).snapshot_id
        with served(folder, arguments.processes, ["service.poll_s=0.2"]) as service:
            line = asyncio.run(watch(service, store, (first, second), arguments.retrievals, arguments.swaps))
    print(json.dumps({"benchmark": "leaks", "processes": arguments.processes, **line}), flush=True)
    if line["broken"]:
        raise SystemExit(1)


async def watch(
    service: Served, store: Store, snapshots: tuple[str, str], retrievals: int, swaps: int
) -> dict[str, Any]:
    """Return the growth, first over retrievals alone, then over swaps with retrievals between them."""
    vectors = questions(open_snapshot(store).entity_vectors, 2000)
    asked = [Query(f"What is known of number {at}?", vector=vector) for at, vector in enumerate(vectors)]
    failures: list[str] = []
    answered: set[str] = set()
    latest = ""
    numbers = iter(range(10**9))

    async def ask(client: AsyncHiragClient, count: int) -> None:
        nonlocal latest
        for _ in range(count):
            try:
                latest = (await client.retrieve(asked[next(numbers) % len(asked)])).snapshot_id
                answered.add(latest)
            except HiragError as error:
                failures.append(f"{type(error).__name__}: {error}")

    async with AsyncHiragClient(service.address) as client:
        started = time.perf_counter()
        over_retrievals = []
        for _ in range(LOOKS):
            await asyncio.gather(*(ask(client, retrievals // LOOKS // CALLERS) for _ in range(CALLERS)))
            over_retrievals.append(_look(service, store))
        seconds = time.perf_counter() - started
        over_swaps = []
        for turn in range(swaps):
            wanted = snapshots[(turn + 1) % 2]
            make_current(store, wanted)
            until = time.monotonic() + SWAPPING_S
            while latest != wanted and time.monotonic() < until:
                await asyncio.gather(*(ask(client, 1) for _ in range(CALLERS)))
            until = time.monotonic() + SETTLING_S
            while time.monotonic() < until:
                await asyncio.gather(*(ask(client, 1) for _ in range(CALLERS)))
            over_swaps.append(_look(service, store))
    growth = {"retrievals": _growth(over_retrievals), "swaps": _growth(over_swaps)}
    broken = [f"{what} of {name} grew" for what, grown in growth.items() for name in grown if _too_much(name, grown)]
    broken += ["a question failed"] if failures else []
    broken += ["a snapshot never answered"] if answered != set(snapshots) else []
    return {
        "retrievals": retrievals,
        "per_s": round(retrievals / seconds, 1),
        "swaps": swaps,
        "growth": growth,
        "over_retrievals": _series(over_retrievals),
        "over_swaps": _series(over_swaps),
        "failures": failures[:3],
        "broken": broken,
    }


def _look(service: Served, store: Store) -> dict[str, float]:
    pids = service.answering()
    return {
        "private_mb": sum(memory_of(pid).private for pid in pids),
        "files": sum(open_files(pid) for pid in pids),
        "threads": sum(threads(pid) for pid in pids),
        "mapped_files": sum(Path(f"/proc/{pid}/maps").read_text().count(str(store.local)) for pid in pids),
    }


def _growth(looks: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return how much more there is in the last quarter than in the second: the first still fills caches."""
    quarter = max(len(looks) // 4, 1)
    late, early = looks[-quarter:], looks[quarter : 2 * quarter]
    return {
        name: round(float(np.median([look[name] for look in late]) - np.median([look[name] for look in early])), 1)
        for name in looks[0]
    }


def _too_much(name: str, grown: dict[str, float]) -> bool:
    return grown[name] > (ENOUGH_GROWTH_MB if name == "private_mb" else 0)


def _series(looks: Sequence[dict[str, float]]) -> dict[str, list[float]]:
    step = max(len(looks) // 10, 1)
    return {name: [round(look[name], 1) for look in looks[::step]] for name in looks[0]}


if __name__ == "__main__":
    main()
