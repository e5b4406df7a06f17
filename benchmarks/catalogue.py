"""Many small indexes in one service: memory and descriptors of each, first answers, and answers at random.

    python -m benchmarks.catalogue --indexes 1000

Prints JSON lines: the single index of the same size first, then the catalogue. One tiny index is built and copied under
other names; the copies are opened as indexes of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil

from benchmarks.served import served
from hirag_dist.client import AsyncHiragClient

_WARM = 200  # requests before those that are measured
_FIRST = ("Ada", "Charles", "Mary", "Luigi", "George", "Grace", "Alan", "Edith")
_LAST = ("Lovelace", "Babbage", "Somerville", "Menabrea", "Boole", "Hopper", "Turing", "Clarke")
_NAMES = [f"{first} {last}" for first in _FIRST for last in _LAST]


def build(folder: Path, n_documents: int) -> Path:
    """Build one index with the built-in model; return its folder."""
    from hirag_dist.composition.indexing import BuildOptions, run_build
    from hirag_dist.config.model import Config

    corpus, index = folder / "corpus", folder / "one"
    corpus.mkdir()
    choose = random.Random(0)
    for number in range(n_documents):
        names = choose.sample(_NAMES, 8)
        text = " ".join(f"{one} built the {other} in 18{number:02}." for one, other in pairwise(names))
        (corpus / f"{number}.txt").write_text(text, encoding="utf-8")
    config = Config.model_validate({"execution": {"executor": "inline"}, "kernels": "cpu"})
    run_build([str(corpus)], str(index), config, BuildOptions())
    shutil.rmtree(index / "work", ignore_errors=True)
    return index


def show(**fields: object) -> None:
    """Print one line."""
    print(json.dumps({name: round(one, 3) if isinstance(one, float) else one for name, one in fields.items()}))


def memory(pid: int) -> dict[str, float]:
    """Return the memory, descriptors and maps of a process."""
    process = psutil.Process(pid)
    used = process.memory_full_info()
    maps = len(Path(f"/proc/{pid}/maps").read_text().splitlines())
    return {"rss_mib": used.rss / 2**20, "uss_mib": used.uss / 2**20, "fds": process.num_fds(), "maps": maps}


async def timed(ask: Callable[[str], Awaitable[object]], names: Sequence[str], callers: int) -> list[float]:
    """Return the milliseconds of each request, with so many callers at a time."""
    left, took = iter(names), list[float]()

    async def caller() -> None:
        for name in left:
            started = time.perf_counter()
            await ask(name)
            took.append((time.perf_counter() - started) * 1e3)

    await asyncio.gather(*(caller() for _ in range(callers)))
    return took


def percentiles(took: Sequence[float]) -> dict[str, float]:
    """Return median and 99th percentile."""
    p50, p99 = np.percentile(took, [50, 99])
    return {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": max(took)}


async def measure(address: str, pid: int, names: Sequence[str], requests: int, form: str) -> None:
    """Measure one service over its indexes."""
    choose = random.Random(1)
    async with AsyncHiragClient(address, retries=False) as client:

        async def ask(name: str) -> object:
            question = f"Who built number {choose.randrange(10**9)}?"
            return await client.retrieve(question, omit_context=True, omit_source_text=True, index=name)

        before = memory(pid)
        show(form=form, step="started", indexes=len(names), **before)
        first = await timed(ask, names, 1)
        after = memory(pid)
        each = {f"{key}_per_index": (after[key] - before[key]) / len(names) for key in before}
        show(form=form, step="first answers", indexes=len(names), **percentiles(first), **after, **each)
        await timed(ask, [choose.choice(names) for _ in range(_WARM)], 1)
        for callers in (1, 16):
            started = time.perf_counter()
            took = await timed(ask, [choose.choice(names) for _ in range(requests)], callers)
            seconds = time.perf_counter() - started
            show(
                form=form, step="warm", callers=callers, requests=requests, **percentiles(took), qps=requests / seconds
            )
        show(form=form, step="end", **memory(pid))


def main() -> None:
    """Build, copy, serve, measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--indexes", type=int, default=1000)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--requests", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        index = build(folder, options.documents)
        size = sum(path.stat().st_size for path in index.rglob("*") if path.is_file())
        show(step="built", documents=options.documents, bytes=size, cores=os.cpu_count())
        names = [f"index-{number:04}" for number in range(options.indexes)]
        for name in names:
            shutil.copytree(index, folder / "catalogue" / name)
        settings = ["service.access_log=off", "service.max_queue_wait_s=30", "vectors.backend=memory"]
        with served(str(index), settings=settings) as service:
            asyncio.run(measure(service.address, service.process.pid, [""], options.requests, "single"))
        settings += [f"service.max_open_indexes={options.indexes}"]
        with served(str(folder / "catalogue"), settings=settings, catalogue=True) as service:
            asyncio.run(measure(service.address, service.process.pid, names, options.requests, "catalogue"))


if __name__ == "__main__":
    main()
