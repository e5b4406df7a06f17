"""Answers of a service while its index is updated and swapped.

A `serve` process answers a steady load of a few callers, each with a connection of its own, while `hirag-dist add`
updates the served index again and again in another process. The service opens each new snapshot as soon as it sees it
(`service.poll_s`). Latencies count from the time at which a request was due, so that a late answer or a late sender
hides nothing. All processes share the machine's cores.

    python -m benchmarks.serving_updates (--corpus CORPUS.jsonl | --entities 100000) [--folder FOLDER] [--updates 5]
        [--documents N] [--callers 4] [--rate 5] [--pause 10] [--nice 0] [--set KEY=VALUE …]

The base is CORPUS without the documents that are added (one by one unless --documents is given), built with the
built-in model, or the generated index of `update_scale.py`, which gets ten documents an update and is kept in FOLDER.
Prints a JSON line for each update: its wall and CPU seconds, and the seconds from the moment at which its snapshot
became current to the first answer from it. The last line has requests, failures and latencies of all, and by window:

    idle      neither update nor swap
    update    from the start of `add` to the moment at which its snapshot is current
    swap      from then to a second after the first answer from it
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import update_scale
from benchmarks.generated import questions
from benchmarks.served import served
from benchmarks.settings import HASHING_OPTION
from benchmarks.update_corpora import CorpusFolder, read_corpus
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import HiragError
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query
from hirag_dist.wire.defaults import MAX_MESSAGE_BYTES

QUESTIONS = 500
POLL_S = 0.2  # of the service
LOOK_S = 0.02  # between two looks at which snapshot is current
SETTLE_S = 1.0  # after the first answer from a snapshot, while the one before is closed
WARM_UP_S = 3.0
TIMEOUT_S = 20.0
SWAP_TIMEOUT_S = 120.0
WINDOWS = ("idle", "update", "swap")
_COMMAND = (sys.executable, "-m", "hirag_dist")
_OPTIONS = ("--executor", "inline", "--set", "update.max_ratio=3", *HASHING_OPTION, "--json")


@dataclass(frozen=True, slots=True)
class Interval:
    """One update and the swap to it, in seconds of the clock `time.perf_counter`.

    Attributes:
        current: when its snapshot became the current one.
        answered: when the first answer from it came.
    """

    started: float
    current: float
    answered: float


@dataclass
class Answers:
    """Requests as they come back.

    Attributes:
        rows: second at which a request was due, milliseconds from then to its answer.
        failed: second at which a failed request was due, and its error.
        first: snapshot → second of the first answer from it.
        late_ms: the longest that a sender was late although its request before was answered.
    """

    rows: list[tuple[float, float]] = field(default_factory=list)
    failed: list[tuple[float, str]] = field(default_factory=list)
    first: dict[str, float] = field(default_factory=dict)
    late_ms: float = 0.0


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(dir=arguments.folder, ignore_cleanup_errors=True) as work:
        index, added = prepared(arguments, Path(work))
        with served(index, 1, [f"service.poll_s={POLL_S}", *arguments.set]) as service:
            lines = asyncio.run(measure(index, service.address, added, arguments))
    case = arguments.corpus.parent.name if arguments.corpus else f"{arguments.entities} entities"
    for line in lines:
        print(json.dumps({"benchmark": "serving_updates", "case": case, **line}))


async def measure(
    index: str, address: str, added: Sequence[Path], arguments: argparse.Namespace
) -> list[dict[str, Any]]:
    """Ask a service while its index is updated with one file of `added` after another; return the lines."""
    vectors = questions(open_snapshot(Store(index)).entity_vectors, QUESTIONS)
    answers, over = Answers(), asyncio.Event()
    starting = time.perf_counter()
    callers = [
        asyncio.create_task(_ask(address, vectors, number, 1 / arguments.rate, answers, over))
        for number in range(arguments.callers)
    ]
    lines: list[dict[str, Any]] = []
    intervals: list[Interval] = []
    try:
        await asyncio.sleep(WARM_UP_S + arguments.pause)
        for number, path in enumerate(added, 1):
            interval, cpu_s = await _update(index, path, answers, arguments.nice)
            intervals.append(interval)
            lines.append(
                {
                    "update": number,
                    "update_s": round(interval.current - interval.started, 2),
                    "update_cpu_s": round(cpu_s, 2),
                    "swap_s": round(interval.answered - interval.current, 2),
                }
            )
            await asyncio.sleep(arguments.pause)
    finally:
        over.set()
        await asyncio.gather(*callers)
    return [*lines, figures(answers, intervals, starting + WARM_UP_S)]


def figures(answers: Answers, intervals: Sequence[Interval], since: float) -> dict[str, Any]:
    """Return requests, failures and latencies of all and by window.

    Args:
        since: second from which requests count.
    """
    rows = np.array([row for row in answers.rows if row[0] >= since]).reshape(-1, 2)
    failed = np.array([due for due, _ in answers.failed if due >= since])
    by_row, by_failure = windows(rows[:, 0], intervals), windows(failed, intervals)
    found: dict[str, Any] = {}
    for window in WINDOWS:
        some = rows[by_row == window, 1]
        found[window] = {
            "requests": len(some) + int((by_failure == window).sum()),
            "failed": int((by_failure == window).sum()),
            **{f"p{share}_ms": round(float(np.percentile(some, share)), 2) for share in (50, 99) if len(some)},
            "longest_ms": round(float(some.max(initial=0.0)), 1),
        }
    quiet = found["idle"]
    ratios = {
        f"{window}_over_idle": {
            name: round(found[window][name] / quiet[name], 2)
            for name in ("p50_ms", "p99_ms")
            if name in found[window] and name in quiet
        }
        for window in WINDOWS[1:]
    }
    return {
        "updates": len(intervals),
        "requests": len(rows) + len(failed),
        "failed": len(failed),
        "errors": [error for due, error in answers.failed if due >= since][:3],
        "snapshots": len(answers.first),
        "swap_s_median": round(float(np.median([each.answered - each.current for each in intervals])), 2),
        "swap_s_longest": round(max(each.answered - each.current for each in intervals), 2),
        "windows": found,
        "ratios": ratios,
        "sender_late_ms": round(answers.late_ms, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def windows(due: NDArray[np.float64], intervals: Sequence[Interval]) -> NDArray[np.str_]:
    """Return the window of each second at which a request was due."""
    found = np.full(len(due), WINDOWS[0], "<U6")
    for each in intervals:
        found[(due >= each.started) & (due < each.current)] = WINDOWS[1]
        found[(due >= each.current) & (due < each.answered + SETTLE_S)] = WINDOWS[2]
    return found


async def _ask(address: str, vectors: Any, number: int, period_s: float, answers: Answers, over: asyncio.Event) -> None:
    """Ask every `period_s` seconds until it is over; a request that is due during another follows it at once."""
    order = np.random.default_rng(number).permutation(len(vectors)).tolist()
    queries = [Query(f"What is known of number {at}?", vector=vectors[at]) for at in order]
    # Channels with equal arguments share one connection; the limit tells them apart.
    limit = MAX_MESSAGE_BYTES + number
    async with AsyncHiragClient(address, max_message_bytes=limit, timeout_s=TIMEOUT_S) as client:
        due, free = time.perf_counter() + period_s * number / 10, 0.0
        for query in cycle(queries):
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            if over.is_set():
                break
            answers.late_ms = max(answers.late_ms, (time.perf_counter() - max(due, free)) * 1e3)
            try:
                found = await client.retrieve(query)
            except HiragError as error:
                answers.failed.append((due, f"{type(error).__name__}: {error}"))
            else:
                answers.rows.append((due, (time.perf_counter() - due) * 1e3))
                answers.first.setdefault(found.snapshot_id, time.perf_counter())
            free = time.perf_counter()
            due += period_s


async def _update(index: str, path: Path, answers: Answers, nice: int) -> tuple[Interval, float]:
    """Add a file to the index, and wait for the first answer from the new snapshot; return also the CPU seconds."""
    store = Store(index)
    before, cpu_s = current_id(store), _children_s()
    started = time.perf_counter()
    command = ["nice", "-n", str(nice), *_COMMAND, "add", str(path), "--index", index, *_OPTIONS]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    ended = asyncio.create_task(process.wait())
    while (now := await asyncio.to_thread(current_id, store)) == before and not ended.done():
        await asyncio.sleep(LOOK_S)
    current = time.perf_counter()
    if await ended or now is None or now == before:
        raise SystemExit(f"`add` ended with {process.returncode} and published nothing")
    while now not in answers.first:
        if time.perf_counter() > current + SWAP_TIMEOUT_S:
            raise SystemExit(f"the service did not take up snapshot {now} within {SWAP_TIMEOUT_S:g} s")
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(SETTLE_S)
    return Interval(started, current, answers.first[now]), _children_s() - cpu_s


def _children_s() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def prepared(arguments: argparse.Namespace, work: Path) -> tuple[str, list[Path]]:
    """Return an index that may be written to, and the file to add in each update."""
    index, files = work / "index", [work / f"added-{number}.jsonl" for number in range(arguments.updates)]
    n_documents = arguments.documents or (1 if arguments.corpus else 10)
    n_added = arguments.updates * n_documents
    if arguments.corpus:
        documents = list(read_corpus(arguments.corpus).items())
        folder = CorpusFolder(work / "input")
        folder.write(dict(documents[:-n_added]))
        command = [*_COMMAND, "index", str(folder.path), "--index", str(index), *_OPTIONS]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        lines = iter([json.dumps({"id": name, "text": text}) + "\n" for name, text in documents[-n_added:]])
    else:
        place = Path(arguments.folder or work) / f"{arguments.entities}"
        if not (place / "base" / "current").exists():
            own = ["--entities", str(arguments.entities), "--folder", str(place.parent), "--step", "base"]
            subprocess.run([sys.executable, "-m", "benchmarks.update_scale", *own], check=True)
        shutil.copytree(place / "base", index)
        lines = update_scale.documents(open_snapshot(Store(str(index))), n_added)
    for path in files:
        path.write_text("".join(islice(lines, n_documents)), encoding="utf-8")
    return str(index), files


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.serving_updates",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--corpus", type=Path, help="JSON lines with a field `text`")
    source.add_argument("--entities", type=int, help="of a generated index")
    parser.add_argument("--folder", type=Path, help="where a generated base is kept for the next run")
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--documents", type=int, help="that each update adds")
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--rate", type=float, default=5.0, help="requests a second of each caller")
    parser.add_argument("--pause", type=float, default=10.0, help="seconds before, between and after updates")
    parser.add_argument("--nice", type=int, default=0, help="lower the priority of the update's process by this much")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="settings of the service")
    return parser.parse_args()


if __name__ == "__main__":
    main()
