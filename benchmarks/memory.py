"""Growth of memory with the corpus, in the driver and in the workers.

Builds layer 0 (read, chunk, extract, merge) of 1 k, 10 k and 100 k made-up chunks on Ray, each in a process of its own,
and prints a JSON line each: the peak memory of the driver and of the largest worker, the tasks, and how many of them
and of their calls were under way at most. The model is a function in the workers at zero latency, which only this
benchmark knows; its replies go through pool, budget and ledger like paid ones. Driver and workers are read at the end
of each stage: VmHWM of /proc, the system's own peak.

    python benchmarks/memory.py [--chunks 1000 10000 100000] [--workers 2] [--executor ray|inline]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil

from benchmarks.processes import workers_below
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import DONE, FIELD, Prompts
from hirag_dist.core.text.tokens import counter, encoding
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.events import StageFinished, TaskFinished
from hirag_dist.execution.executors import InlineExecutor, LazyExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import Services
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.indexing.inputs import source_table
from hirag_dist.indexing.stages.chunk import ChunkDocuments
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.merge import MergeEntities, MergeRelations
from hirag_dist.indexing.stages.read import ReadDocuments, UniqueDocuments
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.protocols import CPU, Executor, ResidentShards
from hirag_dist.readers import ReadOptions
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest

A_FILE = 1000
ENTITIES_A_CHUNK = 3
CHUNKS_AN_ENTITY = 10  # so that entities grow with the corpus, as they do
IN_FLIGHT = 4
KIB_A_MB = 1000 / 1.024


class Parrot:
    """A chat model that answers a text of words with an entity for each, at once."""

    name = "parrot"
    rate_limits = None

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return delimited records."""
        said = request.messages[-1].content.rpartition("Here are ")[2].split()
        names = [word.strip(".,") for word in said if word.startswith("Thing")][:ENTITIES_A_CHUNK]
        lines = [FIELD.join(("entity", name, "concept", f"{name} is made up.")) for name in names]
        pairs = pairwise(names)
        lines += [FIELD.join(("relation", *pair, "One stands beside the other.", "5")) for pair in pairs]
        return ChatReply("\n".join([*lines, DONE]), model=self.name, input_tokens=500, output_tokens=100)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text whole, and then the reply."""
        reply = await self.complete(request)
        yield reply.text
        yield reply

    async def close(self) -> None:
        """Nothing is held."""


class Watched:
    """An executor that notes how many tasks it has taken and not given back, and what memory its stages took."""

    def __init__(self, inner: Executor) -> None:
        self.name = inner.name
        self.most_tasks = 0
        self.workers_mb: dict[int, float] = {}
        self._inner = inner
        self._taken = self._given = 0

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        """As the executor's."""
        for result in self._inner.map(self._counted(tasks)):
            self._given += 1
            yield result

    def look(self, event: object) -> None:
        """Read the workers' peaks, while they live. A listener."""
        if isinstance(event, StageFinished):
            for each in workers_below(os.getpid()):
                self.workers_mb[each.pid] = peak_mb(each.pid)

    def hold(
        self, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool = True, kernels: str = CPU
    ) -> AbstractContextManager[ResidentShards]:
        """As the executor's."""
        return self._inner.hold(load, shards, keep, kernels)

    def release_idle(self) -> None:
        """As the executor's."""
        self._inner.release_idle()

    def close(self) -> None:
        """As the executor's."""
        self._inner.close()

    def _counted(self, tasks: Iterable[Task]) -> Iterator[Task]:
        for task in tasks:
            self._taken += 1
            self.most_tasks = max(self.most_tasks, self._taken - self._given)
            yield task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[1000, 10_000, 100_000])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--executor", choices=("ray", "inline"), default="ray")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)  # in this process
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(measure(arguments.chunks[0], arguments.executor, arguments.workers)), flush=True)
        return
    for n_chunks in arguments.chunks:
        own = [sys.executable, __file__, "--one", "--chunks", str(n_chunks), "--workers", str(arguments.workers)]
        subprocess.run([*own, "--executor", arguments.executor], check=True)


def measure(n_chunks: int, executor: str, workers: int) -> dict[str, Any]:
    """Build layer 0 of so many chunks; return the figures."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        write_corpus(corpus, n_chunks)
        before_mb = psutil.Process().memory_info().rss / 1e6
        store = Store(f"{folder}/index")
        watched = Watched(LazyExecutor(executor, partial(make_executor, store, executor, workers)))
        tasks: dict[str, int] = {}
        peaks: dict[str, float] = {}

        def listen(event: object) -> None:
            if isinstance(event, TaskFinished):
                tasks[event.label] = tasks.get(event.label, 0) + 1
            elif isinstance(event, StageFinished):
                peaks[event.label] = peak_mb(os.getpid())

        started = time.perf_counter()
        try:
            runner = StageRunner(store, watched, (listen, watched.look), 0.0)
            found = build(runner, str(corpus))
        finally:
            watched.close()
        seconds = time.perf_counter() - started
    return {
        "benchmark": "memory",
        "executor": executor,
        "case": f"{n_chunks:,} chunks",
        "chunks": n_chunks,
        "mentions": found["mentions"].rows,
        "entities": found["entities"].rows,
        "tasks": sum(tasks.values()),
        "most_tasks_in_flight": watched.most_tasks,
        "most_calls_in_flight": watched.most_tasks * ExtractGraph.split.n,  # type: ignore[union-attr]
        "driver_start_mb": round(before_mb),
        "driver_peak_mb": round(peak_mb(os.getpid())),
        "driver_peak_mb_after": {label: round(peak) for label, peak in peaks.items()},
        "worker_peak_mb": round(max(watched.workers_mb.values(), default=0.0)),
        "seconds": round(seconds, 1),
    }


def build(runner: StageRunner, corpus: str) -> dict[str, Dataset]:
    """Run the stages from the files to the merged graph."""
    config = Config(chunking="none")
    sources = source_table([corpus])
    files = runner.datasets.put("sources", sources)
    read = runner.run(ReadDocuments(ReadOptions(None, None, None)), "documents", sources=files)
    unique = runner.run(UniqueDocuments(), "unique documents", documents=read.documents, places=read.places)
    documents = unique.documents
    chunks = runner.run(
        ChunkDocuments(config.tokenizer, config.chunk_tokens, config.chunk_overlap_tokens, "none"),
        "chunks",
        documents=documents,
    ).chunks
    extract = ExtractGraph("joint", False, 0, config.entity_types, False, Prompts(), ("parrot",))
    found = runner.run(extract, "extract", chunks=chunks)
    merged = runner.run(MergeEntities(), "merge entities", mentions=found.mentions)
    relations = runner.run(
        MergeRelations(config.description_tokens), "merge relations", relation_mentions=found.relation_mentions
    )
    return {"mentions": found.mentions, "entities": merged.entities, "relations": relations.relations}


def make_executor(store: Store, executor: str, workers: int) -> Executor:
    """Return an executor whose workers ask a parrot."""
    if executor == "inline":
        return InlineExecutor(lambda: make_services(store, make_coordinator(), ""), IN_FLIGHT)
    return RayExecutor(partial(make_services, store), make_coordinator, workers=workers, in_flight=lambda n: IN_FLIGHT)


def make_coordinator() -> QuotaCoordinator:
    """Return a budget that allows as many calls as the tasks in flight can have."""
    return QuotaCoordinator({"parrot": EndpointLimits(None, None, 64)})


def make_services(store: Store, client: QuotaClient, holder: str) -> Services:
    """Return the services of a worker: a chat pool over the stand-in model, without embedder and kernels."""
    config = Config()
    ledger = Ledger(store)
    count = counter(config.tokenizer)
    pool = EndpointPool(
        {"extract": [PricedModel("parrot", Parrot())]},
        ledger,
        RetriedCalls(RateLimiter(client, holder), RetryPolicy()),
        count,
    )

    async def close() -> None:
        await pool.close()
        await ledger.close()

    unused: Any = None
    return Services(pool, unused, unused, encoding(config.tokenizer), count, ledger.refresh, close)


def write_corpus(folder: Path, n_chunks: int) -> None:
    """Write short texts as JSON lines, a thousand a file."""
    n_names = max(n_chunks * ENTITIES_A_CHUNK // CHUNKS_AN_ENTITY, ENTITIES_A_CHUNK)
    for first in range(0, n_chunks, A_FILE):
        with (folder / f"{first // A_FILE:06d}.jsonl").open("w", encoding="utf-8") as file:
            for number in range(first, min(first + A_FILE, n_chunks)):
                names = (f"Thing{(number * 7919 + k * 104_729) % n_names}" for k in range(ENTITIES_A_CHUNK))
                text = f"This is text {number} of a corpus that nobody wrote. Here are {', '.join(names)}."
                file.write(json.dumps({"text": text}) + "\n")


def peak_mb(pid: int) -> float:
    """Return the most memory that a process has had resident, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / KIB_A_MB
    raise SystemExit(f"/proc/{pid}/status names no VmHWM")


if __name__ == "__main__":
    main()
