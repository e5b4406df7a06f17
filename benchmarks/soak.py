"""A month of operating a service, condensed: what it saw.

Two instances of `hirag-dist serve`, each of several processes, answer a steady load of questions on an index in an
object store (a server of this process's own on loopback), with models of `simulate-llm`. Meanwhile every night of the
month a document is added, one is removed and old snapshots are pruned, and once each, or more often: a process is
killed, the instances are restarted one after the other, the endpoint is slow and refuses, the disk of the snapshots'
copies and of temporary files is full, an earlier snapshot is served, the object store is lost, and there is no endpoint
at all. A real Prometheus scrapes the instances and evaluates the chart's alerts (from `PATH`, else of the Debian
package; without one no alert is judged).

    python -m benchmarks.soak [--minutes 60] [--rate 20] [--processes 2] [--nights 30] [--folder FOLDER]
        [--only EVENT …]

Prints JSON lines: each event, then answers by event, memory, threads and files of each process with their slopes,
growth of the disk and of the index, and each alert with whether an event explains it. A summary follows on standard
error. It exits with 1 if an answer failed in no window of an event in which it may, or an alert was wrong or missing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.processes import memory_of, open_files, threads
from benchmarks.soak_month import Month
from benchmarks.soak_parts import (
    FULL_NAME,
    SCRAPE_S,
    Builds,
    Endpoint,
    ObjectStore,
    Pod,
    Program,
    Prometheus,
    prometheus_program,
    small_disk,
)
from benchmarks.soak_report import Asked, answers_by_event, firings, growth, unexplained_failures, verdicts
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import HiragError
from hirag_dist.types import Query

DISK_MIB = 256
SLOW_MS = 1000.0  # as the chart's monitoring.prometheusRule.slowSeconds
SAMPLE_S = 10.0
TIMEOUT_S = 20.0
NEW_SHARE, ANSWER_SHARE = 0.1, 0.05  # of requests: questions never asked before, and answers
MAX_WAITING = 400
BACKGROUND = frozenset({"night", "swap"})
# what happens when, and for how long, as shares of the soak
COURSE = (
    (0.06, 0.0, "kill_worker"),
    (0.10, 0.0, "roll"),
    (0.15, 0.07, "slow_endpoint"),
    (0.30, 0.07, "full_disk"),
    (0.42, 0.0, "roll_back"),
    (0.46, 0.07, "lost_store"),
    (0.56, 0.0, "roll"),
    (0.62, 0.28, "no_endpoint"),
)
PROCESS_FIGURES = ("rss_mb", "pss_mb", "threads", "files")


class Sampler:
    """Looks at processes and disks."""

    def __init__(self, month: Month) -> None:
        self._month = month
        self.processes: list[dict[str, Any]] = []
        self.disks: list[dict[str, Any]] = []

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.to_thread(self.look)
            await asyncio.sleep(SAMPLE_S)

    def look(self) -> None:
        """Take one sample of everything."""
        month, at = self._month, round(self._month.now(), 1)
        for pod in month.pods:
            workers = pod.workers()
            for pid in pod.pids():
                self._process(at, f"{pod.name} {'worker' if pid in workers else 'supervisor'}", pid)
        for pid in month.endpoint.pids():
            self._process(at, "endpoint", pid)
        row: dict[str, Any] = {"at": at}
        for pod in month.pods:
            row[f"{pod.name}_cache_mb"] = _megabytes(pod.cache)
        temporary = (month.disk.at if month.disk else month.folder) / "tmp"
        row["temporary_mb"] = _megabytes(temporary)
        row["temporary_entries"] = sum(1 for _ in temporary.iterdir()) if temporary.exists() else 0
        try:
            objects, size = month.store.size()
        except OSError:  # it is lost
            pass
        else:
            row |= {"index_objects": objects, "index_mb": round(size / 1e6, 2)}
        self.disks.append(row)

    def _process(self, at: float, who: str, pid: int) -> None:
        try:
            memory = memory_of(pid)
            row = {
                "rss_mb": round(memory.private + memory.shared, 1),
                "pss_mb": memory.proportional,
                "threads": threads(pid),
                "files": open_files(pid),
            }
        except (OSError, KeyError):  # it has ended
            return
        self.processes.append({"at": at, "who": who, "pid": pid, **row})


def _megabytes(folder: Path) -> float:
    total = 0
    for path in folder.rglob("*") if folder.exists() else ():
        try:
            total += path.stat().st_blocks * 512 if path.is_file() else 0
        except OSError:  # it was removed
            continue
    return round(total / 1e6, 2)


async def ask(month: Month, questions: Sequence[str], rate: float) -> None:
    """Send questions at the times of a Poisson process until cancelled, whatever comes back."""
    rng = np.random.default_rng(0)
    waiting: set[asyncio.Task[None]] = set()
    target = "ipv4:" + ",".join(pod.address for pod in month.pods)
    # the group cancels what still waits when the soak ends: that is no failure
    async with AsyncHiragClient(target, timeout_s=TIMEOUT_S) as client, asyncio.TaskGroup() as group:
        due = month.now()
        for number in range(10**9):
            due += float(rng.exponential(1 / rate))
            await asyncio.sleep(max(due - month.now(), 0))
            text = questions[int(rng.integers(len(questions)))]
            if rng.random() < NEW_SHARE:
                text = f"{text[:-1]} in volume {number}?"
            kind = "answer" if rng.random() < ANSWER_SHARE else "retrieve"
            if len(waiting) >= MAX_WAITING:
                month.asked.append(Asked(due, 0.0, kind, "not sent: too many requests wait"))
                continue
            task = group.create_task(_one(month, client, text, kind, due))
            waiting.add(task)
            task.add_done_callback(waiting.discard)


async def _one(month: Month, client: AsyncHiragClient, text: str, kind: str, due: float) -> None:
    error = ""
    try:
        if kind == "answer":
            await client.answer(Query(text))
        else:
            month.latest = (await client.retrieve(Query(text))).snapshot_id
    except HiragError as raised:
        error = f"{type(raised).__name__}: {raised}"
    month.asked.append(Asked(due, (month.now() - due) * 1e3, kind, error))


async def course(month: Month, seconds: float, only: Sequence[str]) -> None:
    """Do all that happens in the month, or only what is named, and wait for its end."""
    for share, lasts, name in COURSE:
        if name not in only:
            continue
        await asyncio.sleep(max(share * seconds - month.now(), 0))
        try:
            await getattr(month, name)(lasts * seconds)
        except OSError as error:  # of the object store: the soak goes on
            month.emit({"event": name, "at": round(month.now(), 1), "error": str(error)})
    await asyncio.sleep(max(seconds - month.now(), 0))


async def soak(month: Month, seconds: float, rate: float, questions: Sequence[str], only: Sequence[str]) -> Sampler:
    """Run the month; return the samples of its processes."""
    month.started = time.perf_counter()
    sampler = Sampler(month)
    background = [
        asyncio.create_task(work) for work in (ask(month, questions, rate), month.keep_changing(), sampler.run())
    ]
    try:
        await course(month, seconds, only)
    finally:
        month.stop_builds()
        for task in background:
            task.cancel()
        ended = await asyncio.gather(*background, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception) and not isinstance(error, asyncio.CancelledError):
            raise error
    return sampler


def report(month: Month, sampler: Sampler, fired: dict[str, list[float]] | None) -> list[dict[str, Any]]:
    """Return the lines of what the soak saw."""
    until = month.now()
    answers = answers_by_event(month.asked, month.events, BACKGROUND, SLOW_MS)
    lines: list[dict[str, Any]] = [{"answers": name, **figures} for name, figures in answers.items()]
    unexplained = unexplained_failures(month.asked, month.events)
    lines += [{"process": row.pop("who"), **row} for row in growth(sampler.processes, PROCESS_FIGURES)]
    first, last = sampler.disks[0], sampler.disks[-1]
    step = max(len(sampler.disks) // 12, 1)
    lines.append(
        {"disks": {name: [first.get(name), last.get(name)] for name in first}, "series": sampler.disks[::step]}
    )
    alerts = None if fired is None else verdicts(firings(fired, SCRAPE_S), month.events, until)
    lines += [] if alerts is None else alerts
    nights = [event.detail.get("codes", {}) for event in month.events if event.name == "night"]
    lines.append(
        {
            "summary": "soak",
            "seconds": round(until),
            "requests": len(month.asked),
            "failed": sum(1 for each in month.asked if each.error),
            "failed_unexplained": len(unexplained),
            "examples": sorted({f"{round(each.due)} s {each.kind}: {each.error[:200]}" for each in unexplained})[:5],
            "nights": len(nights),
            "nights_failed": sum(1 for codes in nights if any(codes.values())),
            "nights_left_out": month.skipped,
            "alerts": None if alerts is None else len(alerts),
            "alerts_wrong": None if alerts is None else sum(1 for line in alerts if not line["right"]),
        }
    )
    return lines


def in_words(lines: Sequence[dict[str, Any]]) -> str:
    """Return the summary for people."""
    said = ["What it saw", ""]
    for line in lines:
        if "answers" in line:
            said.append(
                f"  {line['answers']:<18} {line['requests']:>6} requests, {line['failed']:>4} failed, "
                f"{line['slow']:>4} slow, p99 {line.get('p99_ms', '-')} ms"
            )
            said += [f"      {count} × {error}" for error, count in line["errors"].items()]
        elif "process" in line and line["rss_mb_per_h"] is not None:
            slopes = ", ".join(f"{name} {line[name][1]:g} ({line[f'{name}_per_h']:+g}/h)" for name in PROCESS_FIGURES)
            said.append(f"  {line['process']:<18} {line['seconds']:>5} s: {slopes}")
        elif "disks" in line:
            said += [f"  {name:<18} {first} → {last}" for name, (first, last) in line["disks"].items() if name != "at"]
        elif "alert" in line:
            what = "was due and did not fire" if line["fired_s"] is None else f"fired at {line['fired_s']} s"
            said.append(f"  {line['alert']} {what}: {'right' if line['right'] else 'WRONG'} ({line['event']})")
        elif "summary" in line:
            said.append("  " + ", ".join(f"{name} {value}" for name, value in line.items() if name != "summary"))
    return "\n".join(said)


def serve_text(builds: Builds) -> tuple[ThreadingHTTPServer, str]:
    """Serve the metrics of builds; return the server and its HOST:PORT."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(builds.text().encode())

        def log_message(self, *args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"127.0.0.1:{server.server_port}"


def write_config(path: Path, url: str) -> None:
    """Write the configuration of service and builds."""
    common = {"base_url": f"{url}/v1", "model": "any", "first_token_timeout_s": 20, "max_concurrent": 16}
    config = {
        "execution": {"executor": "inline"},
        "vectors": {"backend": "memory"},
        "update": {"max_ratio": 3},
        "llm": {
            "endpoints": {"chat": common, "vectors": {**common, "dim": 384}},
            "roles": dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat")
            | {"embed": "vectors"},
        },
    }
    path.write_text(yaml.safe_dump(config), encoding="utf-8")


def emit(line: dict[str, Any]) -> None:
    """Print a line of the log."""
    print(json.dumps({"benchmark": "soak", **line}), flush=True)


async def run(arguments: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Start everything, soak, and return the lines of the report."""
    corpus = Path(str(resources.files("hirag_dist.samples"))) / "corpus"
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(corpus.glob("*.md"))}
    program = prometheus_program(work / "prometheus-package")
    seconds = arguments.minutes * 60
    builds, store, endpoint = Builds(), ObjectStore(), Endpoint(work)
    started: list[Program] = [endpoint]
    metrics, builds_address = serve_text(builds)
    config = work / "hirag.yaml"
    write_config(config, endpoint.url)
    with small_disk(work / "disk", DISK_MIB) as disk:
        try:
            await endpoint.start()
            place = disk.at if disk else work
            pods = [Pod(number, store.uri, config, arguments.processes, place, work) for number in range(2)]
            period = seconds / arguments.nights
            month = Month(store, endpoint, pods, builds, disk, work, config, texts, period, emit)
            code = await month._run("index", str(corpus))
            if code:
                raise SystemExit(f"the first build ended with {code}")
            started += pods
            await asyncio.gather(*(pod.start() for pod in pods))
            builds.put("kube_cronjob_created", time.time(), cronjob=f"{FULL_NAME}-build")
            month._unready(0)
            prometheus = None
            if program is not None:
                targets = {pod.name: pod.metrics for pod in pods}
                prometheus = Prometheus(program, work / "prometheus", targets, builds_address)
                started.append(prometheus)
                await prometheus.start()
            since = time.time()
            sampler = await soak(month, seconds, arguments.rate, _questions(texts), arguments.only)
            _keep(work / "samples.jsonl", [*sampler.processes, *sampler.disks, *map(asdict, month.asked)])
            fired = None
            if prometheus is not None:
                found = await asyncio.to_thread(prometheus.firing, since, time.time())
                fired = {alert: [at - since for at in times] for alert, times in found.items()}
            return report(month, sampler, fired)
        finally:
            for each in reversed(started):
                each.kill()
            store.process.kill()
            metrics.shutdown()


def _keep(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _questions(texts: dict[str, str]) -> list[str]:
    """Return questions about the sentences of the documents."""
    sentences = [part.strip() for text in texts.values() for part in text.replace("\n", " ").split(". ")]
    return [f"What is said of this: {each[:80]}?" for each in sentences if len(each) > 40][:300]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second")
    parser.add_argument("--processes", type=int, default=2, help="of each of the two instances")
    parser.add_argument("--nights", type=int, default=30, help="changes of the index in that time")
    every = sorted({name for _, _, name in COURSE})
    parser.add_argument("--only", nargs="*", choices=every, default=every, help="what happens, apart from the nights")
    parser.add_argument("--folder", type=Path, help="where logs and samples stay; default: a temporary folder")
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell has it ignored in what it starts in background
    with tempfile.TemporaryDirectory(prefix="hirag-soak-", ignore_cleanup_errors=True) as temporary:
        if arguments.folder is not None:
            arguments.folder.mkdir(parents=True)
        lines = asyncio.run(run(arguments, arguments.folder or Path(temporary)))
    for line in lines:
        emit(line)
    print(in_words(lines), file=sys.stderr)
    if lines[-1]["failed_unexplained"] or lines[-1]["alerts_wrong"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
