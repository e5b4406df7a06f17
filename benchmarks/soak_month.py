"""A month of a service for `soak.py`: nights of changes, and faults."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.soak_parts import COMMAND, FULL_NAME, KEYS, Builds, Endpoint, ObjectStore, Pod, SmallDisk
from benchmarks.soak_report import Asked, Event
from benchmarks.update_corpora import common_words, renamed

KEPT_NIGHTS = 7  # for which a document stays
WEEK = 7
SLOW_ENDPOINT = ("--latency-ms", "1500", "--jitter", "0.8", "--fail-rate", "0.15", "--storm-rate", "0.01")
ERRORS_DUE_S = 15 * 60.0  # of failing questions until HiragErrors fires: five minutes of rates, ten of `for`
SWAP_FAILED_DUE_S = 30.0  # of a store that is away: two looks at `current`
NEVER = float("inf")  # an alert that is right, and need not fire
_NIGHT_NAME = f"{FULL_NAME}-build-{{number:08d}}"
_INCOMPLETE = 3
_OWNER = {"owner_kind": "CronJob", "owner_name": f"{FULL_NAME}-build"}


@dataclass
class Month:
    """The service, what is around it, and what has happened so far.

    Attributes:
        disk: the small disk, None where there is none.
        folder: of documents and of temporary files of builds.
        texts: of the documents that nights change under other names.
        period_s: from one night to the next.
        emit: writes a line of the log.
        latest: the snapshot that answered last.
    """

    store: ObjectStore
    endpoint: Endpoint
    pods: list[Pod]
    builds: Builds
    disk: SmallDisk | None
    folder: Path
    config: Path
    texts: dict[str, str]
    period_s: float
    emit: Callable[[dict[str, Any]], None]
    started: float = field(default_factory=time.perf_counter)
    events: list[Event] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    latest: str = ""
    nights: int = 0
    skipped: int = 0
    running: asyncio.subprocess.Process | None = None
    _building: asyncio.Lock = field(default_factory=asyncio.Lock)

    def now(self) -> float:
        """Return the seconds since the soak began."""
        return time.perf_counter() - self.started

    @contextmanager
    def event(self, name: str, alerts: Mapping[str, float] | None = None, *, fails: bool = False) -> Iterator[Event]:
        """Log an event that lasts as long as the block.

        Args:
            alerts: that it explains, with the seconds after which they are due.
            fails: whether answers may fail.
        """
        made = Event(name, round(self.now(), 1), fails=fails, alerts=alerts or {})
        self.events.append(made)
        self.emit({"event": name, "at": made.started})
        try:
            yield made
        finally:
            made.ended = round(self.now(), 1)
            self.emit({"event": name, "at": made.started, "ended": made.ended, **made.detail})

    async def keep_changing(self) -> None:
        """Have a night every `period_s`; one that is due while another goes on is left out, as by the chart."""
        changes: set[asyncio.Task[None]] = set()
        while True:
            await asyncio.sleep(self.period_s)
            if self._building.locked():
                self.skipped += 1
                self.emit({"event": "night left out", "at": round(self.now(), 1)})
            else:
                task = asyncio.create_task(self.night())
                changes.add(task)
                task.add_done_callback(changes.discard)

    async def night(self) -> None:
        """Add a document, remove one of a week ago, prune; once a week also write what updates have put off."""
        async with self._building:
            self.nights += 1
            number, name = self.nights, _NIGHT_NAME.format(number=self.nights)
            self._job("kube_job_created", name, time.time())
            self._job("kube_job_status_start_time", name, time.time())
            self._job("kube_job_owner", name, 1, **_OWNER)
            with self.event("night") as event:
                event.detail = {"number": number, "codes": {}}
                code = 0
                for command in self._commands(number):
                    code = await self._run(*command)
                    event.detail["codes"][command[0]] = code
                    if code == _INCOMPLETE:
                        code = event.detail["codes"]["retry"] = await self._run("retry")
                    if code:
                        break
            condition = "kube_job_failed" if code else "kube_job_complete"
            self._job(condition, name, 1, condition="true")
            if code == 0:
                self.builds.put("kube_cronjob_status_last_successful_time", time.time(), cronjob=f"{FULL_NAME}-build")
        if code == 0:
            await self._swapped()

    def _commands(self, number: int) -> Iterator[list[str]]:
        added = self.folder / "added"
        added.mkdir(exist_ok=True)
        drawn = random.Random(number)
        text = self.texts[drawn.choice(sorted(self.texts))]
        path = added / f"night-{number:03d}.md"
        path.write_text(renamed(text, number, common_words(list(self.texts.values()))), encoding="utf-8")
        yield ["add", str(path)]
        old = sorted(added.glob("night-*.md"))[:-KEPT_NIGHTS]
        if old:
            for each in old:
                each.unlink()
            yield ["remove", *(option for each in old for option in ("--source", each.name))]
        if number % WEEK == 0:
            yield ["refresh"]
        yield ["prune", "--keep", "2", "--older-than", f"{self.period_s:.0f}s"]

    async def _run(self, command: str, *options: str) -> int:
        """Run a command of the index as a build of the chart does; return its exit code."""
        temporary = (self.disk.at if self.disk else self.folder) / "tmp"
        temporary.mkdir(exist_ok=True)
        arguments = [*COMMAND, command, *options, "--index", self.store.uri, "--config", str(self.config), "--json"]
        log = self.folder / "builds.log"
        with log.open("ab") as out:
            self.running = await asyncio.create_subprocess_exec(
                *arguments, stdout=out, stderr=out, env=os.environ | KEYS | {"TMPDIR": str(temporary)}
            )
            code = await self.running.wait()
        if code:
            lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
            self.emit({"command": command, "code": code, "at": round(self.now(), 1), "said": lines[-1][-400:]})
        return code

    def stop_builds(self) -> None:
        """Interrupt the command that runs, as the chart does."""
        if self.running is not None and self.running.returncode is None:
            self.running.send_signal(signal.SIGINT)

    async def _swapped(self) -> None:
        with self.event("swap") as event:
            try:
                current = (await asyncio.to_thread(self.store.read, "current")).strip()
            except OSError as error:
                event.detail = {"current": str(error)}
                return
            until = self.now() + 60
            while self.latest != current and self.now() < until:
                await asyncio.sleep(0.2)
            event.detail = {"snapshot": current, "answered": self.latest == current}

    def _job(self, metric: str, job: str, value: float, **labels: str) -> None:
        self.builds.put(metric, value, job_name=job, **labels)

    async def roll(self, seconds: float) -> None:
        """Stop one instance after the other by SIGTERM, and start it again."""
        with self.event("rolling restart") as event:
            event.detail["exit_codes"] = []
            for at, pod in enumerate(self.pods):
                self._unready(1)
                event.detail["exit_codes"].append(await pod.stop())
                await pod.start()
                self._unready(0)
                if at + 1 < len(self.pods):
                    await asyncio.sleep(10)  # clients find it again

    def _unready(self, count: int) -> None:
        self.builds.put("kube_deployment_status_replicas_unavailable", count, deployment=f"{FULL_NAME}-query")

    async def kill_worker(self, seconds: float) -> None:
        """Kill one process that answers, as a lack of memory does; answers that it was at may fail."""
        with self.event("process killed", fails=True) as event:
            pod = self.pods[0]
            before = pod.workers()
            psutil.Process(before[-1]).kill()
            event.detail["pid"] = before[-1]
            until = self.now() + 60
            while len(pod.workers()) < len(before) or before[-1] in pod.workers():
                if self.now() > until:
                    event.detail["replaced"] = False
                    return
                await asyncio.sleep(0.2)
            event.detail["replaced"] = True

    async def slow_endpoint(self, seconds: float) -> None:
        """Have the endpoint answer late, with 5xx and storms of 429, during a night."""
        with self.event("slow endpoint", {"HiragErrors": NEVER, "HiragSlow": NEVER}, fails=True):
            await self.endpoint.stop()
            await self.endpoint.start(*SLOW_ENDPOINT)
            await self._for(seconds, self.night())
            await self.endpoint.stop()
            await self.endpoint.start()

    async def no_endpoint(self, seconds: float) -> None:
        """Have no endpoint: questions that have to be embedded fail, builds wait or fail."""
        due = {"HiragErrors": ERRORS_DUE_S, "HiragBuildFailed": NEVER, "HiragSlow": NEVER}
        with self.event("no endpoint", due, fails=True):
            await self.endpoint.stop()
            await asyncio.sleep(seconds)
            await self.endpoint.start()

    async def full_disk(self, seconds: float) -> None:
        """Fill the disk of the copies of snapshots and of the temporary files of builds, during a night."""
        if self.disk is None:
            self.emit({"event": "full disk", "left_out": "this machine cannot mount a file system"})
            return
        due = {"HiragSwapFailed": NEVER, "HiragBuildFailed": NEVER}
        with self.event("full disk", due) as event:
            event.detail["filled_bytes"] = await asyncio.to_thread(self.disk.fill)
            await self._for(seconds, self.night())
            self.disk.clear()

    async def lost_store(self, seconds: float) -> None:
        """Have the object store unreachable, during a night."""
        due = {"HiragSwapFailed": SWAP_FAILED_DUE_S, "HiragBuildFailed": NEVER}
        with self.event("lost object store", due):
            await asyncio.to_thread(self.store.say, "down")
            await self._for(seconds, self.night())
            await asyncio.to_thread(self.store.say, "up")

    async def roll_back(self, seconds: float) -> None:
        """Serve the snapshot before the current one, as the documentation says."""
        async with self._building:
            with self.event("rollback") as event:
                current = (await asyncio.to_thread(self.store.read, "current")).strip()
                earlier = [own for own in await asyncio.to_thread(self.store.snapshots) if own != current]
                if not earlier:
                    event.detail["left_out"] = "there is one snapshot"
                    return
                await asyncio.to_thread(self.store.write, "current", earlier[-1])
                until = self.now() + 60
                while self.latest != earlier[-1] and self.now() < until:
                    await asyncio.sleep(0.2)
                event.detail = {"snapshot": earlier[-1], "answered": self.latest == earlier[-1]}

    async def _for(self, seconds: float, change: Coroutine[Any, Any, None]) -> None:
        """Wait so long, and until a change has ended, ten minutes at most."""
        night = asyncio.create_task(change)
        await asyncio.sleep(seconds)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(night), 600)
