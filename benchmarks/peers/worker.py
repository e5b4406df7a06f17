"""One phase of one package, inside its environment: `python -m benchmarks.peers.worker JOB`.

Writes its figures as JSON to the job's `result`. CPU seconds here are this process's, all threads; what a phase costs
with all its processes and its start is measured from outside (`metering.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peers.job import Adapter, Job

Ask = Callable[[str], Awaitable[str]]


def main() -> None:
    job = Job.read(Path(sys.argv[1]))
    figures: dict[str, Any] = {}
    with _timed(figures, "import"):
        module = importlib.import_module(f"benchmarks.peers.adapters.{job.adapter}")
    measured = asyncio.run(_PHASES[job.phase](module, job))
    Path(job.result).write_text(json.dumps(figures | measured), encoding="utf-8")


async def _indexed(module: Any, job: Job) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with _timed(figures, "work"):
        await module.Adapter(job).index(job.documents())
    return figures


async def _queried(module: Any, job: Job) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    with _timed(figures, "open"):
        adapter: Adapter = module.Adapter(job)
        await adapter.open()
    figures["sizes"] = await adapter.sizes()
    for question in job.questions["warm"]:
        await adapter.answer(question)
    figures["alone"] = await alone(adapter.answer, job.questions["alone"])
    if adapter.retrieves:
        for question in job.questions["warm"]:
            await adapter.context(question)
        figures["context"] = await alone(adapter.context, job.questions["context"])
    figures["clients"] = await crowd(adapter.answer, job.questions["clients"], job.clients)
    await adapter.close()
    return figures


async def alone(ask: Ask, questions: Sequence[str]) -> dict[str, Any]:
    """Return the latency of sequential questions in milliseconds, the mean length of replies and the empty ones."""
    times: list[float] = []
    empty = chars = 0
    cpu = time.process_time()
    for question in questions:
        started = time.perf_counter()
        reply = await ask(question)
        times.append((time.perf_counter() - started) * 1e3)
        empty += not reply.strip()
        chars += len(reply)
    cpu = time.process_time() - cpu
    return {
        "questions": len(questions),
        "p50_ms": round(percentile(times, 50), 2),
        "p99_ms": round(percentile(times, 99), 2),
        "cpu_ms": round(cpu * 1e3 / len(questions), 2),
        "chars": round(chars / len(questions)),
        "empty": empty,
    }


async def crowd(ask: Ask, questions: Sequence[str], clients: int) -> dict[str, Any]:
    """Return how many answers a second that many clients get, each asking its next question once it has a reply."""
    waiting = iter(questions)
    empty = 0

    async def client() -> None:
        nonlocal empty
        for question in waiting:
            reply = await ask(question)  # on a line of its own: `empty` is read after the wait
            empty += not reply.strip()

    started, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(client() for _ in range(clients)))
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu
    return {
        "questions": len(questions),
        "clients": clients,
        "answers_s": round(len(questions) / wall, 2),
        "cpu_ms": round(cpu * 1e3 / len(questions), 2),
        "empty": empty,
    }


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank percentile.

    >>> percentile([3.0, 1.0, 2.0], 50)
    2.0
    """
    return sorted(values)[max(math.ceil(share / 100 * len(values)), 1) - 1]


@contextlib.contextmanager
def _timed(figures: dict[str, Any], name: str) -> Iterator[None]:
    started, cpu = time.perf_counter(), time.process_time()
    yield
    figures[f"{name}_s"] = round(time.perf_counter() - started, 3)
    figures[f"{name}_cpu_s"] = round(time.process_time() - cpu, 3)


_PHASES = {"index": _indexed, "query": _queried}


if __name__ == "__main__":
    main()
