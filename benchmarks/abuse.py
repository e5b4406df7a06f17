"""Does the service stand what strangers do to it? Prints a JSON line for each, and fails where a promise is broken.

    fuzz    random and mutated messages, metadata and HTTP/2 frames: no crash, no hang, no error that was not foreseen,
            no growth, and proper questions in between are answered as before
    idle    thousands of connections that say nothing: proper questions are answered as fast; memory of a connection
    hoard   more connections from one address than the service has file descriptors: how long others are kept out
    slow    headers that come a byte at a time; streams that say nothing; streams and answers that are never read:
            others are not held up, memory stays bounded

    python benchmarks/abuse.py [--messages 100000] [--connections 10000] [--slow-s 60] [--only fuzz idle hoard slow]

With the defaults it takes some ten minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.generated import generate, questions
from benchmarks.hostile_clients import (
    Connections,
    Probe,
    dribble,
    fuzz,
    idle_streams,
    make_connections,
    make_messages,
    unread_calls,
)
from benchmarks.processes import memory_of, open_files, threads
from benchmarks.served import Served, served
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

PARTS = ("fuzz", "idle", "hoard", "slow")
FRAMES_SHARE = 0.3  # of the fuzzed messages are frames on plain sockets
ENOUGH_GROWTH_MB = 64.0  # private memory that a service may gain between a fifth and the end of the fuzzing
SLOW_STREAMS = 200  # connections with a stream that is never read: more than the requests that may be at work
UNREAD_ANSWERS = 2000  # calls on one connection whose answers are never read
DRIBBLERS = 200
IDLE_STREAMS = 2000
STREAMS_A_CONNECTION = 100
MAX_FILES = 1024  # of the service that is hoarded
HOARDED = 1100
KEPT_OUT_S = 5.0  # longest time for which a new caller may be kept out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--slow-s", type=float, default=60.0, help="for how long slow clients are watched")
    parser.add_argument("--entities", type=int, default=10_000, help="of the generated index that is served")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # of the service too, which inherits it
    broken = False
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        generate(store, arguments.entities)
        vector = questions(open_snapshot(store).entity_vectors, 1)[0]
        for part in arguments.only:
            settings = []
            if part == "idle":
                settings = [f"service.{key}={2 * arguments.connections}" for key in _CONNECTION_LIMITS]
            with served(folder, settings=settings, max_files=MAX_FILES if part == "hoard" else None) as service:
                do = {"fuzz": _fuzz, "idle": _idle, "hoard": _hoard, "slow": _slow}[part]
                for line in asyncio.run(do(service, vector, arguments)):
                    print(json.dumps({"benchmark": "abuse", "way": part, **line}), flush=True)
                    broken = broken or bool(line["broken"])
    if broken:
        raise SystemExit(1)


_CONNECTION_LIMITS = ("max_connections", "max_connections_per_client", "max_connection_idle_s")


async def _fuzz(service: Served, vector: NDArray[np.float32], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    n_frames = int(arguments.messages * FRAMES_SHARE)
    messages = make_messages(len(vector), arguments.messages - n_frames, arguments.seed)
    connections = make_connections(n_frames, arguments.seed)
    memory: dict[float, float] = {}
    async with _probing(service, vector) as probe:

        def look(share: float) -> None:
            memory[round(share, 1)] = _private_mb(service)
            print(f"{share:.0%} {memory[round(share, 1)]} MB", file=sys.stderr, flush=True)

        await probe.ask_for(2.0)
        before = probe.figures()
        found = await fuzz(service.address, messages, connections, probe, look=look)
        during = probe.figures()
    growth = max(memory.values()) - memory.get(0.2, 0.0)
    crashed = service.process.poll() is not None
    broken = [
        name
        for name, wrong in {
            "crash": crashed,
            "hang": found.hung,
            "unforeseen error": found.unforeseen,
            "proper question failed": during["failed"],
            "growth": growth > ENOUGH_GROWTH_MB,
        }.items()
        if wrong
    ]
    figures = asdict(found) | {"codes": {kind: dict(codes) for kind, codes in found.codes.items()}}
    figures |= {"hung": found.hung[:5], "unforeseen": found.unforeseen[:5]}
    counts = {"n_hung": len(found.hung), "n_unforeseen": len(found.unforeseen)}
    kinds = sum(found.codes.values(), Counter())
    own = {"all_codes": dict(kinds), "private_mb": memory, "growth_mb": round(growth, 1), "files": _files(service)}
    return [{"case": "messages", **figures, **counts, **own, "before": before, "during": during, "broken": broken}]


async def _idle(service: Served, vector: NDArray[np.float32], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    async with _probing(service, vector) as probe:
        await probe.ask_for(5.0)
        before, empty = probe.figures(), _private_mb(service)
        async with Connections(service.address) as connections:
            await connections.open(arguments.connections)
            full = _private_mb(service)
            await probe.ask_for(10.0)
            during = probe.figures()
            alive = connections.alive
            own = {"files": _files(service), "threads": _threads(service)}
        await probe.ask_for(5.0)
        after = probe.figures()
        left = _private_mb(service)
    broken = ["proper question failed"] if during["failed"] or after["failed"] else []
    broken += ["slower"] if during["p50_ms"] > 3 * before["p50_ms"] + 5 else []
    broken += ["connections lost"] if alive < arguments.connections else []
    return [
        {
            "case": f"{arguments.connections:,} connections",
            "alive": alive,
            "kb_a_connection": round((full - empty) * 1000 / arguments.connections, 1),
            "private_mb": {"empty": empty, "full": full, "closed": left},
            **own,
            "before": before,
            "during": during,
            "after": after,
            "broken": broken,
        }
    ]


async def _hoard(service: Served, vector: NDArray[np.float32], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Ask over a new connection each time, from another address than that of the hoarder."""
    lines = []
    for kind, spoken in (("idle", b""), ("idle streams", idle_streams(1))):
        async with Connections(service.address, spoken=spoken, source="127.0.0.2", greeted=False) as hoard:
            began = time.monotonic()
            await hoard.open(HOARDED)
            answered_at, longest_s, failures = time.monotonic(), 0.0, 0
            while time.monotonic() - began < arguments.slow_s:
                probe = Probe(service.address, vector)
                await probe.ask()
                await probe.close()
                failures += len(probe.failures)
                if not probe.failures:
                    longest_s = max(longest_s, time.monotonic() - answered_at)
                    answered_at = time.monotonic()
                await asyncio.sleep(0.1)
            longest_s = max(longest_s, time.monotonic() - answered_at)
            alive, files = hoard.alive, _files(service)
        lines.append(
            {
                "case": f"{HOARDED} {kind} connections from one address, {MAX_FILES} descriptors",
                "kept_out_s": round(longest_s, 2),
                "failed": failures,
                "left_to_the_hoarder": alive,
                "files": files,
                "broken": ["kept out"] if longest_s > KEPT_OUT_S else [],
            }
        )
        await asyncio.sleep(1)
    return lines


async def _slow(service: Served, vector: NDArray[np.float32], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    lines = []
    async with _probing(service, vector) as probe:
        await probe.ask_for(3.0)
        before = probe.figures()

        async def watched(case: str, asked: Connections, count: int) -> dict[str, Any]:
            empty = _private_mb(service)
            async with asked:
                await asked.open(count)
                await probe.ask_for(arguments.slow_s)
                during, alive, held = probe.figures(), asked.alive, _private_mb(service)
                ended = asked.ended_calls
            await probe.ask_for(3.0)
            broken = ["proper question failed"] if during["failed"] else []
            return {
                "case": case,
                "still_open": alive,
                "calls_ended": ended,
                "watched_s": arguments.slow_s,
                "private_mb": {"before": empty, "held": held, "after": _private_mb(service)},
                "before": before,
                "during": during,
                "after": probe.figures(),
                "broken": broken,
            }

        streams = Connections(service.address, window=0, spoken=unread_calls("RetrieveStream", 1, vector))
        lines.append(await watched("streams that are never read", streams, SLOW_STREAMS))
        silent = Connections(service.address, spoken=idle_streams(STREAMS_A_CONNECTION))
        lines.append(await watched(f"{IDLE_STREAMS} idle streams", silent, IDLE_STREAMS // STREAMS_A_CONNECTION))
        answers = Connections(service.address, window=0, spoken=unread_calls("Retrieve", UNREAD_ANSWERS, vector))
        lines.append(await watched("answers that are never read", answers, 1))
        dribbling = asyncio.create_task(dribble(service.address, DRIBBLERS, arguments.slow_s))
        await probe.ask_for(arguments.slow_s)
        during = probe.figures()
        broken = ["proper question failed"] if during["failed"] else []
        still = await dribbling
        lines.append(
            {
                "case": "headers a byte at a time",
                "still_open": still,
                "before": before,
                "during": during,
                "broken": broken,
            }
        )
    return lines


@asynccontextmanager
async def _probing(service: Served, vector: NDArray[np.float32]) -> AsyncIterator[Probe]:
    probe = Probe(service.address, vector)
    try:
        yield probe
    finally:
        await probe.close()


def _private_mb(service: Served) -> float:
    return round(sum(memory_of(pid).private for pid in service.answering()), 1)


def _files(service: Served) -> int:
    return sum(open_files(pid) for pid in service.answering())


def _threads(service: Served) -> int:
    return sum(threads(pid) for pid in service.answering())


if __name__ == "__main__":
    main()
