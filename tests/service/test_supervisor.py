"""The supervisor, with small programs for workers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.generated import generate
from benchmarks.served import served
from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import ConfigError, HiragError, ServiceError
from hirag_dist.service.supervisor import Supervisor, WorkerJob, finished_before, reserve, stop_signals
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_the_first_signal_stops_and_the_second_hurries(number: signal.Signals) -> None:
    stop, hurry = asyncio.Event(), asyncio.Event()
    default = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, default)  # another test of this process may have left a handler
    with stop_signals(stop, hurry):
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 10)
        assert not hurry.is_set()
        os.kill(os.getpid(), number)
        await asyncio.wait_for(hurry.wait(), 10)
    assert signal.signal(number, before) == default


@pytest.mark.parametrize("cancel", [True, False])
async def test_an_event_before_the_task(cancel: bool) -> None:
    event, forever = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        await forever.wait()

    task = asyncio.create_task(waits())
    event.set()
    assert not await finished_before(event, task, cancel=cancel)
    assert task.cancelled() == cancel
    forever.set()
    await asyncio.gather(task, return_exceptions=True)


# What each worker has: its work, a way to report, how often it was started before, and the supervisor's process.
pytestmark = pytest.mark.integration  # its workers are processes
PREAMBLE = """
import json, os, pathlib, signal, sys, time
work = sys.stdin.buffer.read(4).decode()
def report(**said):
    print(json.dumps(said), flush=True)
def sleep():
    while True:
        time.sleep(60)
starts = pathlib.Path(os.environ["STARTS"])
with starts.open("a") as file:
    print(work, os.getpid(), file=file)
before = starts.read_text().split().count(work) - 1
"""
STEADY = "signal.pthread_sigmask(signal.SIG_BLOCK, {15}); report(ready=work); signal.sigwait({15})"
AGAIN = """
signal.pthread_sigmask(signal.SIG_BLOCK, {15})
report(ready=work)
if before:
    os.kill(os.getppid(), 15)
signal.sigwait({15})
"""


class Workers:
    """Programs as workers under a supervisor, with name and process of each start."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, *programs: str, ready: Callable[[str], None] | None = None, **options: Any) -> bool:
        """Run them until they are ready, or until `ready` ends them."""
        jobs = [
            WorkerJob(
                (sys.executable, "-SE", "-c", PREAMBLE + program),
                f"w{number:03}".encode(),
                {"STARTS": str(self.path)},
                f"worker {number}",
            )
            for number, program in enumerate(programs)
        ]
        supervisor = Supervisor(jobs, ready=ready or stop, **({"drain_s": 30, "pause_s": 0.01} | options))
        return asyncio.run(supervisor.run())

    def starts(self) -> list[tuple[str, int]]:
        lines = [line.split() for line in self.path.read_text().splitlines()]
        return [(name, int(process)) for name, process in lines]

    def are_gone(self) -> bool:
        return not [process for _, process in self.starts() if Path(f"/proc/{process}").exists()]


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path / "starts")


def stop(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_ready_when_all_are_and_stopped_by_a_signal(workers: Workers) -> None:
    """The terminal's interrupt does not reach them a second time: they are in groups of their own."""
    groups: list[int] = []

    def ready(_: str) -> None:
        groups.extend(os.getpgid(process) for _, process in workers.starts())
        stop()

    handler = signal.getsignal(signal.SIGTERM)
    assert workers.run(STEADY, STEADY, STEADY, ready=ready)
    assert len(groups) == 3
    assert os.getpgid(0) not in groups
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_worker_that_dies_is_started_again(workers: Workers) -> None:
    died: list[int] = []

    def kill(_: str) -> None:
        os.kill(dict(workers.starts())["w001"], signal.SIGKILL)

    assert workers.run(STEADY, AGAIN, ready=kill, on_death=died.append)
    (_, first), (name, _) = [start for start in workers.starts() if start[0] != "w000"]
    assert (died, name, len(workers.starts())) == ([first], "w001", 3)


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("report(failed='no index there', exit_code=1); sys.exit(1)", ServiceError, "^no index there$"),
        ("report(failed='wrong file', exit_code=2); sys.exit(2)", ConfigError, "^wrong file$"),
        ("sys.exit(3)", ServiceError, r"^worker 1 \(process \d+\) ended with code 3 before it was ready"),
        (
            "os.kill(os.getpid(), 9)",
            ServiceError,
            r"^worker 1 \(process \d+\) was killed by SIGKILL before it was ready",
        ),
    ],
)
def test_a_worker_that_cannot_start_ends_it_all(
    workers: Workers, program: str, kind: type[HiragError], words: str
) -> None:
    with pytest.raises(kind, match=words):
        workers.run(STEADY, program)
    assert workers.are_gone()


def test_workers_that_cannot_live_are_given_up(workers: Workers) -> None:
    lives_once = "report(ready=work) if not before else None\ntime.sleep(0.01 if before else 0.2)\nsys.exit(1)"
    assert not workers.run(lives_once, lives_once, ready=lambda _: None)
    assert 5 <= len([name for name, _ in workers.starts() if name == "w000"]) < 20


def test_a_worker_that_does_not_stop_is_killed(workers: Workers) -> None:
    stubborn = "signal.signal(15, signal.SIG_IGN); report(ready=work); sleep()"
    assert not workers.run(stubborn, STEADY, drain_s=0, grace_s=0.1)
    assert workers.are_gone()


def test_no_worker_outlives_its_supervisor(workers: Workers) -> None:
    """The supervisor is killed; its workers see their standard input end."""
    program = PREAMBLE + "report(ready=work); sys.stdin.buffer.read(); print('alone', file=sys.stderr)"
    code = f"""
import asyncio, sys
from hirag_dist.service.supervisor import Supervisor, WorkerJob
job = WorkerJob((sys.executable, "-SE", "-c", {program!r}), b"work", {{"STARTS": {str(workers.path)!r}}}, "worker")
asyncio.run(Supervisor([job, job], drain_s=30, ready=lambda _: print("ready", flush=True)).run())
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.kill()
        assert process.stdout.read() == "alone\nalone\n"  # to the end, which comes when the last of them is gone


def test_an_address_that_is_held_is_not_taken_by_others() -> None:
    """A service of one process would listen there before the workers have opened their snapshots."""
    with reserve("127.0.0.1", 0) as held, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(held.getsockname())


STUCK = """
import threading
from hirag_dist.service.supervisor import exit_within
exit_within(0.2)
threading.Thread(target=threading.Event().wait).start()  # as a call that never returns: Python waits for its thread
"""


@pytest.mark.integration
def test_a_process_that_does_not_end_is_ended() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=120, check=False)
    assert done.returncode == 1
    assert b"has not ended within 0.2 s" in done.stderr


@pytest.mark.integration
async def test_sigterm_ends_a_service_whose_endpoint_never_answers(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    generate(store, 1000)
    manifest = open_snapshot(store).manifest
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are accepted, nothing is ever sent
        at = f"llm.endpoints.far={{kind: openai, base_url: 'http://127.0.0.1:{silent.getsockname()[1]}/v1', "
        at += f"model: {manifest.embedder}, dim: {manifest.dim}}}"
        settings = ["service.drain_s=1", at, "llm.roles.embed=far"]
        with served(str(tmp_path), settings=settings) as service:
            async with AsyncHiragClient(service.address, timeout_s=300, retries=False) as client:
                asking = asyncio.create_task(client.answer("Who was it?"))
                connection, _ = await asyncio.to_thread(silent.accept)
                began = time.monotonic()
                service.process.send_signal(signal.SIGTERM)
                with pytest.raises(ServiceError):
                    await asking
            assert await asyncio.to_thread(service.process.wait, 60) == 0
            assert time.monotonic() - began < 20  # drain 1 s, closing some more on a loaded machine
            connection.close()
