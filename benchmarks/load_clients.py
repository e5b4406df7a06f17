"""One client process of `load.py`: asks a service for some seconds, and prints what came back as one JSON object.

Closed loop: so many callers, each with a connection of its own, ask again as soon as they have an answer. Open loop:
requests are sent at the times that a Poisson process gives, whatever comes back; a latency counts from the time that
the request was due, so that a sender which falls behind hides nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import grpc
import numpy as np

from hirag_dist.client import AsyncHiragClient
from hirag_dist.client.common import SERVICE_NAME
from hirag_dist.errors import HiragError
from hirag_dist.types import Query
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.addresses import MAX_MESSAGE_BYTES
from hirag_dist.wire.convert import query_to_proto

RETRIEVE = f"/{SERVICE_NAME}/Retrieve"


@dataclass(frozen=True, slots=True)
class Task:
    """Task of a client process.

    Attributes:
        target: gRPC name of the service.
        questions: an .npy file of query vectors.
        callers: connections; in an open loop they are used in turn.
        seconds: for how long; `warm_up_s` of them are not counted.
        rate: requests a second that an open loop sends, 0 for a closed loop.
        plain: ask with messages made beforehand and do not read the answers, instead of with the package's client, so
            that the clients leave the processors to the service.
        timeout_s: of a request.
        seed: of the arrival times, and of which question comes first.
    """

    target: str
    questions: str
    callers: int
    seconds: float
    warm_up_s: float
    rate: float = 0.0
    plain: bool = False
    timeout_s: float = 20.0
    seed: int = 0


@dataclass
class Found:
    """Measurements of a client process.

    Attributes:
        ms: latency of each answer, and second of the run in which it was due.
        codes: how often each status came back; OK among them.
        requests: all that were sent, those of the warm-up too.
        errors: some of the messages of failed requests.
        snapshots: which snapshots answered.
        cpu_s: processor time of the client.
        lag_ms: the longest that an open loop was late with sending.
    """

    ms: list[tuple[float, float]] = field(default_factory=list)
    codes: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    errors: list[str] = field(default_factory=list)
    snapshots: set[str] = field(default_factory=set)
    cpu_s: float = 0.0
    lag_ms: float = 0.0


class _Asker:
    """One connection."""

    def __init__(self, task: Task, number: int) -> None:
        self._task = task
        vectors = np.load(task.questions)
        order = np.random.default_rng((task.seed, number)).permutation(len(vectors))
        self._queries = [Query(f"What is known of number {at}?", vector=vectors[at]) for at in order.tolist()]
        self._next = 0
        # Channels with equal arguments share one connection; the limit tells them apart, as processes would be.
        limit = MAX_MESSAGE_BYTES + number
        if task.plain:
            self._requests = [pb.RetrieveRequest(query=query_to_proto(q)).SerializeToString() for q in self._queries]
            options = [("grpc.max_receive_message_length", limit), ("grpc.enable_retries", 0)]
            self._channel = grpc.aio.insecure_channel(task.target, options=options)
            self._call: Any = self._channel.unary_unary(RETRIEVE)
        else:
            self._client = AsyncHiragClient(task.target, max_message_bytes=limit, timeout_s=task.timeout_s)

    async def ask(self) -> str:
        """Ask the next question; return the snapshot that answered, empty where the answer was not read."""
        at = self._next = (self._next + 1) % len(self._queries)
        if self._task.plain:
            await self._call(self._requests[at], timeout=self._task.timeout_s)
            return ""
        return (await self._client.retrieve(self._queries[at])).snapshot_id

    async def close(self) -> None:
        await (self._channel.close() if self._task.plain else self._client.close())


async def run(task: Task, start_at: float) -> Found:
    """Ask until the time is over.

    Args:
        start_at: when to begin, seconds since the epoch.
    """
    askers = [_Asker(task, number) for number in range(task.callers)]
    found = Found()
    cpu = time.process_time()
    await asyncio.sleep(start_at - time.time())
    started = time.perf_counter()
    if task.rate:
        await _open_loop(task, askers, found, started)
    else:
        await asyncio.gather(*(_caller(task, asker, found, started) for asker in askers))
    found.cpu_s = time.process_time() - cpu
    await asyncio.gather(*(asker.close() for asker in askers))
    return found


async def _caller(task: Task, asker: _Asker, found: Found, started: float) -> None:
    while (due := time.perf_counter()) - started < task.seconds:
        await _ask(task, asker, found, started, due)


async def _open_loop(task: Task, askers: list[_Asker], found: Found, started: float) -> None:
    gaps = np.random.default_rng(task.seed).exponential(1 / task.rate, int(task.rate * task.seconds * 1.5) + 10)
    waiting: set[asyncio.Task[None]] = set()
    for number, due in enumerate((started + np.cumsum(gaps)).tolist()):
        if due - started > task.seconds:
            break
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        found.lag_ms = max(found.lag_ms, (time.perf_counter() - due) * 1e3)
        sent = asyncio.create_task(_ask(task, askers[number % len(askers)], found, started, due))
        waiting.add(sent)
        sent.add_done_callback(waiting.discard)
    await asyncio.gather(*waiting)


async def _ask(task: Task, asker: _Asker, found: Found, started: float, due: float) -> None:
    counted = due - started >= task.warm_up_s
    found.requests += 1
    try:
        snapshot = await asker.ask()
    except (grpc.aio.AioRpcError, HiragError) as error:
        code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else type(error).__name__
        if counted:
            found.codes[code] += 1
        if len(found.errors) < 5:
            found.errors.append(f"{code}: {error.details() if isinstance(error, grpc.aio.AioRpcError) else error}")
        return
    if counted:
        found.codes["OK"] += 1
        found.ms.append(((time.perf_counter() - due) * 1e3, due - started))
        found.snapshots.add(snapshot)


def main() -> None:
    task = Task(**json.loads(sys.argv[1]))
    print("ready", flush=True)
    found = asyncio.run(run(task, float(sys.stdin.readline())))
    print(json.dumps(vars(found) | {"snapshots": sorted(found.snapshots)}))


if __name__ == "__main__":
    main()
