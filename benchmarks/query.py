"""Time of each part of a retrieval in process, and memory, at 10 thousand to a million entities.

Prints JSON lines, a snapshot at a time:

    open       seconds until an engine answers its first question, files cold and warm
    retrieve   p50, p95, p99 of each part and of the whole, with and without the vector search, and CPU a question;
               for questions that the process has not seen, and for the same ones again
    memory     private and shared memory of 1 and 2 processes that have opened the index and answered questions
    baseline   the HiRAG reference's algorithm on the same graph and questions (`reference_query.py`), and the ratio

Each line is measured in processes of its own. Vectors of questions are at hand: no embedding call is in any figure.
Snapshots are generated (`generated.py`) and kept in --folder, or an index that is there is asked with --index.

    python benchmarks/query.py [--sizes 10000 100000 1000000] [--folder DIR] [--index DIR [--questions FILE]]
        [--vectors memory milvus-lite milvus] [--count 400] [--no-baseline]

Milvus Lite is asked up to 100,000 entities (it holds 13 KB of each vector), `milvus` where its wheel is installed.
Making and asking a million takes some four minutes; the baseline another four and 12 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.generated import questions
from benchmarks.processes import make_cold, memory_of
from benchmarks.settings import HASHING_OPTION
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.llm.endpoints.factory import make_embedder
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.layout import snapshot_path
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Retrieval

SIZES = (10_000, 100_000, 1_000_000)
LITE_UP_TO = 100_000
WARM_UP = 40  # questions that are asked before the measured ones, and are none of them
PERCENTILES = (50, 95, 99)
BASELINE_COUNT = 60  # questions for the baseline, and for the engine in the same run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="entities of generated snapshots")
    parser.add_argument("--folder", help="where generated snapshots are kept and found again")
    parser.add_argument("--index", help="an index that is there, instead of generated ones")
    parser.add_argument("--sample", action="store_true", help="the sample corpus, indexed first: for `make bench`")
    parser.add_argument("--questions", help="one a line, or JSONL with `query`; made up from the vectors without it")
    parser.add_argument("--vectors", nargs="+", default=["memory", "milvus-lite", "milvus"])
    parser.add_argument("--milvus-uri", help="a running server; without it one is started from the wheel `milvus`")
    parser.add_argument("--levels", nargs="+", default=["leaf"], help="of communities: leaf, all, or a number")
    parser.add_argument("--count", type=int, default=400, help="questions")
    parser.add_argument("--no-baseline", dest="baseline", action="store_false")
    parser.add_argument("--baseline-up-to", type=int, default=1_000_000, help="entities")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        _child(json.loads(arguments.child))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        for name, index in _indexes(arguments, folder):
            asked = {"index": index, "questions": arguments.questions, "count": arguments.count}
            for line in measure(asked, arguments):
                print(json.dumps({"benchmark": "query", "case": name, **line}), flush=True)


def _indexes(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (name, folder) of each index, made where it is missing."""
    if arguments.index:
        yield Path(arguments.index).name, arguments.index
    elif arguments.sample:
        samples = Path(str(resources.files("hirag_dist.samples")))
        command = [sys.executable, "-m", "hirag_dist", "index", str(samples / "corpus"), "--index", f"{folder}/sample"]
        command += HASHING_OPTION
        subprocess.run([*command, "--executor", "inline", "--json"], check=True, stdout=subprocess.DEVNULL)
        yield "sample corpus", f"{folder}/sample"
    else:
        for size in arguments.sizes:
            index = folder / str(size)
            if current_id(Store(str(index))) is None:
                command = [sys.executable, str(Path(__file__).with_name("generated.py"))]
                subprocess.run([*command, str(index), "--entities", str(size)], check=True, stdout=subprocess.DEVNULL)
            yield f"{size:,} entities", str(index)
            if not arguments.folder:
                shutil.rmtree(index)


def measure(asked: dict[str, Any], arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the lines of one index.

    Args:
        asked: index, questions and count, as children take them.
    """
    n_entities = open_snapshot(Store(asked["index"])).manifest.counts["entities"]
    yield _opening(asked)
    for backend in arguments.vectors:
        if backend == "milvus-lite" and n_entities > LITE_UP_TO:
            continue
        with _copied(asked["index"], backend) as place, _milvus(backend, arguments.milvus_uri) as settings:
            for level in arguments.levels if settings is not None else ():
                own = {**(settings or {}), "retrieval.community_level": level}
                yield _run({**asked, "index": place, "do": "retrieve", "settings": own})
    for n_processes in (1, 2):
        yield _holding(asked, n_processes)
    if arguments.baseline and n_entities <= arguments.baseline_up_to:
        few = {**asked, "count": min(asked["count"], BASELINE_COUNT)}
        engine = _run({**few, "do": "retrieve", "settings": {"vectors.backend": "memory"}})
        reference = _run({**few, "do": "baseline"})
        ours, theirs = engine["unseen"], reference["ms"]
        parts = ("without_search", "total", "cpu")
        ratio = {part: round(theirs[part]["p50"] / ours[part]["p50"], 1) for part in parts}
        yield {**reference, "engine_ms": {part: ours[part] for part in parts}, "ratio_of_p50": ratio}


def _opening(own: dict[str, Any]) -> dict[str, Any]:
    """Return how long opening takes, files cold and warm, and whatever had to be derived first apart."""
    store = Store(own["index"])
    folder = Path(own["index"], snapshot_path(str(current_id(store))))
    derived = _run({**own, "do": "open"})  # the first that opens an index writes what a later version derives from it
    make_cold(folder)
    cold = _run({**own, "do": "open"})
    warm = [_run({**own, "do": "open"}) for _ in range(3)]
    return {
        "way": "open",
        "entities": derived["entities"],
        "relations": derived["relations"],
        "first_ever_s": derived["open_s"],
        "cold": {name: cold[name] for name in ("open_s", "first_answer_ms", "process_s")},
        "warm": {
            name: float(np.median([each[name] for each in warm])) for name in ("open_s", "first_answer_ms", "process_s")
        },
    }


def _holding(own: dict[str, Any], n_processes: int) -> dict[str, Any]:
    """Return the memory of processes that hold the same index and have answered questions."""
    task = {**own, "do": "hold", "settings": {"vectors.backend": "memory"}}
    children = [_start(task, stdin=subprocess.PIPE) for _ in range(n_processes)]
    try:
        before = [json.loads(child.stdout.readline()) for child in children if child.stdout]
        found = [memory_of(child.pid) for child in children]
    finally:
        for child in children:
            child.communicate()
    return {
        "way": "memory",
        "processes": n_processes,
        "interpreter_private_mb": before[0]["private_mb"],
        "private_mb": max(each.private for each in found),
        "shared_mb": max(each.shared for each in found),
        "proportional_mb": round(sum(each.proportional for each in found), 1),
    }


@contextlib.contextmanager
def _copied(index: str, backend: str) -> Iterator[str]:
    """Yield the index; for Milvus Lite a copy by links, because it writes into the index folder."""
    if backend != "milvus-lite":
        yield index
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = f"{folder}/index"
        shutil.copytree(index, copy, ignore=shutil.ignore_patterns("milvus", "work", "ledger"))
        yield copy


@contextlib.contextmanager
def _milvus(backend: str, uri: str | None) -> Iterator[dict[str, Any] | None]:
    """Yield the settings for a backend, with a server running where one is needed; None where it cannot run here."""
    if backend != "milvus":
        yield {"vectors.backend": backend}
        return
    if uri is not None:
        yield {"vectors.backend": "milvus", "vectors.uri": uri}
        return
    if importlib.util.find_spec("milvus") is None:
        print("no Milvus server: `pip install milvus==2.3.5`, or name one with --milvus-uri", file=sys.stderr)
        yield None
        return
    import milvus

    with tempfile.TemporaryDirectory() as folder:
        server = milvus.MilvusServer()
        server.set_base_dir(folder)
        server.config.set("proxy_port", 0)  # otherwise it opens its default port too
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            server.listen_port = free.getsockname()[1]
        try:
            server.start()
        except (TimeoutError, RuntimeError) as error:  # two servers at once share ports in spite of their settings
            print(f"no Milvus server: {error}", file=sys.stderr)
            server.stop()
            yield None
            return
        try:
            yield {"vectors.backend": "milvus", "vectors.uri": f"http://127.0.0.1:{server.listen_port}"}
        finally:
            server.stop()


def _start(task: dict[str, Any], stdin: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", json.dumps(task)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True)


def _run(task: dict[str, Any]) -> dict[str, Any]:
    started = time.perf_counter()
    child = _start(task)
    output, _ = child.communicate()
    if child.returncode:
        raise SystemExit(child.returncode)
    found: dict[str, Any] = json.loads(output)
    return found | {"process_s": round(time.perf_counter() - started, 2)} if task["do"] == "open" else found


def _child(task: dict[str, Any]) -> None:
    """Do one measurement in this process, and print it."""
    do = {"open": _child_open, "retrieve": _child_retrieve, "hold": _child_hold, "baseline": _child_baseline}[
        task["do"]
    ]
    asyncio.run(do(task))


def _opened(task: dict[str, Any]) -> tuple[Config, Snapshot, QueryEngine, float]:
    config = load_config(None, {}, task.get("settings", {"vectors.backend": "memory"})).config
    started = time.perf_counter()
    snapshot = open_snapshot(Store(task["index"]))
    engine = make_engine(config, snapshot, Prompts())
    return config, snapshot, engine, time.perf_counter() - started


async def _questions(task: dict[str, Any], config: Config, snapshot: Snapshot) -> tuple[list[Query], list[Query]]:
    """Return questions to warm up with, and others to measure."""
    vectors = snapshot.entity_vectors
    warm_up = [Query("What is known of it?", vector=vector) for vector in questions(vectors, WARM_UP, seed=1)]
    if not task["questions"]:
        made = questions(vectors, task["count"])
        return warm_up, [Query(f"What is known of number {at}?", vector=vector) for at, vector in enumerate(made)]
    lines = [line for line in Path(task["questions"]).read_text(encoding="utf-8").splitlines() if line][: task["count"]]
    texts = [str(json.loads(line)["query"]) if line.startswith("{") else line for line in lines]
    embedded = await make_embedder(config).embed(texts)
    return warm_up, [Query(text, vector=vector) for text, vector in zip(texts, embedded, strict=True)]


async def _child_open(task: dict[str, Any]) -> None:
    config, snapshot, engine, seconds = _opened(task)
    _, asked = await _questions({**task, "count": 1}, config, snapshot)
    started = time.perf_counter()
    await engine.retrieve(asked[0])
    first = (time.perf_counter() - started) * 1e3
    counts = snapshot.manifest.counts
    await engine.close()
    _print(
        {
            "entities": counts["entities"],
            "relations": counts["relations"],
            "open_s": round(seconds, 3),
            "first_answer_ms": round(first, 1),
        }
    )


async def _child_hold(task: dict[str, Any]) -> None:
    private = memory_of(os.getpid()).private
    config, snapshot, engine, _ = _opened(task)
    warm_up, asked = await _questions(task, config, snapshot)
    for query in [*warm_up, *asked]:
        await engine.retrieve(query)
    _print({"private_mb": private})
    sys.stdin.read()  # until the parent has looked
    await engine.close()


async def _child_retrieve(task: dict[str, Any]) -> None:
    config, snapshot, engine, _ = _opened(task)
    warm_up, asked = await _questions(task, config, snapshot)
    for query in warm_up:
        await engine.retrieve(query)
    unseen, found = await _timed_questions(engine, asked)
    again, _ = await _timed_questions(engine, asked)
    await engine.close()
    _print(
        {
            "way": "retrieve",
            "vectors": task["settings"]["vectors.backend"],
            "community_level": config.retrieval.community_level,
            "entities": snapshot.manifest.counts["entities"],
            "questions": len(asked),
            "found": {name: round(value, 1) for name, value in found.items()},
            "unseen": unseen,
            "again": again,
        }
    )


async def _timed_questions(engine: QueryEngine, asked: list[Query]) -> tuple[dict[str, Any], dict[str, float]]:
    """Return percentiles of every part in milliseconds, and the mean size of what was found."""
    parts: list[dict[str, float]] = []
    cpu: list[float] = []
    sizes: list[tuple[int, ...]] = []
    for query in asked:
        before = time.process_time()
        result = await engine.retrieve(query)
        cpu.append((time.process_time() - before) * 1e3)
        times = dict(result.timings_ms)
        parts.append(times | {"without_search": times["total"] - times.get("search", 0.0) - times.get("embed", 0.0)})
        sizes.append(_sizes(result))
    names = ("communities", "key_entities", "hops", "triples", "sources", "context_tokens")
    spread = {part: _percentiles([times.get(part, 0.0) for times in parts]) for part in parts[0]}
    spread["cpu"] = _percentiles(cpu) | {"mean": round(float(np.mean(cpu)), 2)}
    return spread, dict(zip(names, np.mean(sizes, axis=0).tolist(), strict=True))


def _sizes(result: Retrieval) -> tuple[int, ...]:
    hops = sum(len(path.entity_ids) - 1 for path in result.paths if path.connected)
    found = len(result.communities), len(result.key_entities), hops, len(result.triples), len(result.sources)
    return (*found, result.context_tokens)


async def _child_baseline(task: dict[str, Any]) -> None:
    from benchmarks.reference_query import ReferenceQuery

    config = load_config(None, {}).config
    threadpool_limits(1)  # as the engine does
    snapshot = open_snapshot(Store(task["index"]))
    started = time.perf_counter()
    reference = ReferenceQuery(snapshot, counter(config.tokenizer))
    opened = time.perf_counter() - started
    warm_up, asked = await _questions(task, config, snapshot)
    for query in warm_up[:10]:
        reference.ask(_vector(query))
    parts: list[dict[str, float]] = []
    cpu: list[float] = []
    for query in asked:
        before = time.process_time()
        _, times = reference.ask(_vector(query))
        cpu.append((time.process_time() - before) * 1e3)
        parts.append(times | {"without_search": times["total"] - times["search"]})
    spread = {part: _percentiles([times[part] for times in parts]) for part in parts[0]}
    _print(
        {
            "way": "baseline",
            "entities": snapshot.manifest.counts["entities"],
            "questions": len(asked),
            "open_s": round(opened, 1),
            "private_mb": memory_of(os.getpid()).private,
            "ms": spread | {"cpu": _percentiles(cpu)},
        }
    )


def _print(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def _vector(query: Query) -> NDArray[np.float32]:
    assert query.vector is not None
    return np.asarray(query.vector, np.float32)


def _percentiles(values: list[float]) -> dict[str, float]:
    return {f"p{share}": round(float(np.percentile(values, share)), 3) for share in PERCENTILES}


if __name__ == "__main__":
    main()
