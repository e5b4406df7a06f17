"""Parts of `faults.py`: an endpoint that may die, builds that may be killed, and the audit of the paid calls."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
import yaml

DURABLE_S = 0.15  # a reply is durable 100 ms after it was answered; its way here and the disk take the rest
QUEUED_S = 0.1  # what the dead had sent may be read by the endpoint only a moment later
ATTEMPTS = 3
SMALL = {  # a few hundred chat calls and four layers of summaries out of the sample corpus
    "chunk_tokens": 150,
    "chunk_overlap_tokens": 10,
    "clustering": {"target_size": 6, "max_size": 12},
    "communities": {"max_size": 40},
}
_START_S = 60.0
_LOOK_S = 0.01
_ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1", "COLUMNS": "300"}


class Failed(Exception):
    """A build or an endpoint did not do what its case is about."""


class Endpoint:
    """`simulate-llm` in a process of its own, at one address over all its lives, with one log of all of them.

    Args:
        folder: where the log goes.
        options: of the command.
    """

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.log = folder / "calls.jsonl"
        self._options = tuple(options)
        self._listen = "127.0.0.1:0"
        self._process: subprocess.Popen[str] | None = None
        self.url = ""
        self.start()

    def start(self, options: Sequence[str] | None = None) -> None:
        """Start the endpoint, with other options if given; its counts restart at 0, its log continues."""
        given = self._options if options is None else tuple(options)
        command = [sys.executable, "-m", "hirag_dist", "simulate-llm", "--listen", self._listen]
        self._process = subprocess.Popen(
            [*command, "--log", str(self.log), *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=_ENVIRONMENT,
        )
        assert self._process.stderr is not None
        said = ""
        for line in self._process.stderr:
            said += line
            found = re.search(r"http://(\S+)/v1", line)
            if found:
                self._listen, self.url = found.group(1), found.group(0)
                return
        raise Failed(f"the endpoint did not start: {said}")

    def end(self, how: signal.Signals) -> None:
        """End this life."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.communicate()

    def faults(self) -> dict[str, int]:
        """Return how many faults this life gave, by kind."""
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats", timeout=10) as reply:
            found: dict[str, int] = json.load(reply)["total"]["faults"]
        return found


@dataclass(frozen=True)
class Job:
    """Input, folder and settings of a build.

    Attributes:
        folder: of this build alone; holds the configuration and the index.
        inputs: INPUT.
        executor: inline or ray.
        settings: of the configuration, in addition to those of every case.
    """

    folder: Path
    inputs: tuple[str, ...]
    executor: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def index(self) -> Path:
        """The index folder."""
        return self.folder / "index"

    def configure(self, url: str, timeout_s: float) -> None:
        """Write the configuration: every role is played over HTTP.

        Texts are embedded one a call, so that each paid vector is a line in the endpoint's log; `output: delimited`,
        since a probe for structured outputs is made once a run, and would be counted as paid twice.
        """
        common = {"base_url": url, "first_token_timeout_s": timeout_s, "silence_timeout_s": timeout_s}
        chat = common | {"model": "simulated", "max_concurrent": 8, "output": "delimited"}
        vectors = common | {"model": "simulated-embedding", "dim": 384, "max_concurrent": 16, "batch_size": 1}
        roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat") | {"embed": "vectors"}
        llm = {
            "endpoints": {"chat": chat, "vectors": vectors},
            "roles": roles,
            "attempts": ATTEMPTS,
            "outage_timeout_s": 60,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "hirag.yaml").write_text(yaml.safe_dump(SMALL | {"llm": llm} | self.settings), encoding="utf-8")

    def start(self, command: str = "index") -> Life:
        """Start `index` or `retry`."""
        inputs = self.inputs if command == "index" else ()
        line = [sys.executable, "-m", "hirag_dist", command, *inputs, "--index", str(self.index), "--json"]
        line += ["--config", str(self.folder / "hirag.yaml"), "--executor", self.executor]
        return Life(line, self.folder, len(list(self.folder.glob("stdout-*"))))


class Life:
    """One process of a build, with what it printed in files: a killed Ray may keep a pipe open."""

    def __init__(self, command: Sequence[str], folder: Path, number: int) -> None:
        self._out, self._err = folder / f"stdout-{number:03d}", folder / f"stderr-{number:03d}"
        self._lock = folder / "index" / "run.lock"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = psutil.Popen(command, stdout=out, stderr=err, stdin=subprocess.DEVNULL, env=_ENVIRONMENT)

    def is_over(self) -> bool:
        """True after the process has ended."""
        return self.process.poll() is not None

    def lasts(self, seconds: float) -> bool:
        """Wait so long; return whether it still lives."""
        with suppress(subprocess.TimeoutExpired, psutil.TimeoutExpired):
            self.process.wait(max(seconds, 0.001))
        return not self.is_over()

    def has_begun(self) -> bool:
        """Wait until it holds the index; return False where it ended before."""
        give_up_at = time.monotonic() + _START_S
        while not self.is_over() and time.monotonic() < give_up_at:
            with suppress(OSError, ValueError):
                if json.loads(self._lock.read_bytes())["pid"] == self.process.pid:
                    return True
            time.sleep(_LOOK_S)
        return False

    def finish(self) -> tuple[int, dict[str, Any]]:
        """Wait for its end; return its exit code and the object that it printed."""
        code = int(self.process.wait(900))
        if code not in (0, 3):
            raise Failed(f"a build ended with exit code {code}:\n{self._err.read_text(encoding='utf-8')}")
        return code, json.loads(self._out.read_bytes())

    def workers(self) -> list[psutil.Process]:
        """Return the processes of Ray's workers that are up."""
        return workers_below(self.process.pid)


def workers_below(pid: int) -> list[psutil.Process]:
    """Return the processes of Ray's workers that are up, of what a process started."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for each in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                if "".join(each.cmdline()[:1]).startswith("ray::Worker") and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
    return found


def wait_for_deaths(processes: Iterable[psutil.Process]) -> Iterator[float]:
    """Yield when each of the processes was found dead, in seconds since the epoch."""
    left = list(processes)
    give_up_at = time.monotonic() + _START_S
    while left:
        for each in list(left):
            if not each.is_running() or each.status() == psutil.STATUS_ZOMBIE:
                left.remove(each)
                yield time.time()
        if time.monotonic() > give_up_at:
            raise Failed(f"processes outlived what they belong to by {_START_S:g} s: {left}")
        time.sleep(_LOOK_S)


@dataclass(frozen=True)
class Audit:
    """Paid replies according to the log of the endpoint.

    Attributes:
        replies: that were paid for.
        in_flight: paid again because the first reply was in flight when a process died, or its caller was gone.
        refused: asked again with the same words, the reply having been malformed or cut. A new attempt, not a loss.
        other: paid again for no good reason.
    """

    replies: int
    in_flight: int
    refused: int
    other: int
    faults: dict[str, int]
    examples: tuple[str, ...] = ()


def audit(log: Path, deaths: Sequence[float]) -> Audit:
    """Read a log of calls.

    Args:
        deaths: of driver, worker or endpoint, in seconds since the epoch.
    """
    paid: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    faults: Counter[str] = Counter()
    with log.open("rb") as lines:
        for line in lines:
            call = json.loads(line)
            if call["fault"]:
                faults[call["fault"]] += 1
            if call["status"] == 200 or call["abandoned"]:
                paid[call["path"], call["request"]].append(call)
    kinds: Counter[str] = Counter()
    examples = []
    for calls in paid.values():
        calls.sort(key=lambda call: call["time"])
        for before, again in pairwise(calls):
            kind = _why_again(before, deaths)
            kinds[kind] += 1
            if kind == "other":
                nearest = min((before["time"] - death for death in deaths), key=abs, default=None)
                examples.append(f"{before} then {again}; the nearest death was {nearest} s before the first ended")
    n_paid = sum(map(len, paid.values()))
    return Audit(n_paid, kinds["in flight"], kinds["refused"], kinds["other"], dict(faults), tuple(examples))


def _why_again(before: dict[str, Any], deaths: Sequence[float]) -> str:
    begun, ended = before["time"] - before["seconds"], before["time"]
    if before["abandoned"] or any(begun - QUEUED_S <= death <= ended + DURABLE_S for death in deaths):
        return "in flight"
    return "refused" if before["fault"] in ("malformed", "truncate") else "other"


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """Give a list that holds the seconds once the block has ended."""
    started = time.perf_counter()
    taken: list[float] = []
    try:
        yield taken
    finally:
        taken.append(time.perf_counter() - started)
