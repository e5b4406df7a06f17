"""Kills of drivers, Ray workers and the endpoint at random moments of updates.

All but the last two documents of the sample corpus are indexed, in small chunks, against `simulate-llm` in a process of
its own. The update adds these two, edits one document and removes one. It runs on Ray on copies of that index, until
there were --kills SIGKILLs: of the driver, which is then started again, of one of the two workers, or of the endpoint,
which is back at its address a moment later; which and when is drawn. Each update is finished. It must end in the
snapshot of the undisturbed update. What was paid is counted from the endpoint's own log, with the
calls of the first build in it: a repeat is `in flight` where the first reply was being answered, or was answered less
than 150 ms before a process died; any `other` repeat is a fault of hirag_dist.

    python -m benchmarks.update_kills [--kills 30] [--seed 1] [--span-s S] [--keep DIR]

Prints a JSON line for each update and one with the sums; exits with 1 where a snapshot differs or there is an `other`
repeat. 30 kills take some ten minutes on two cores; the tree of the package must not change meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.faults import CORPUS, PACE, TIMEOUT_S
from benchmarks.faulty_runs import Audit, Endpoint, Failed, Job, Life, audit, stopwatch, wait_for_deaths

KINDS = ("driver", "worker", "endpoint")
N_ADDED = 2
EDIT = "A further sentence about the Analytical Engine was added to this page by an editor of the encyclopedia."
_DOWN_S = 1.0  # the longest that the endpoint is away


@dataclass(frozen=True)
class Drill:
    """An index to update, and its update.

    Attributes:
        folder: of the first build, with the log of its endpoint, and of all updates.
        inputs: INPUT of the update.
    """

    folder: Path
    inputs: tuple[str, ...]

    @contextmanager
    def update(self, name: str, executor: str) -> Iterator[tuple[Endpoint, Job]]:
        """Give an endpoint, and an update of a copy of the index that has not started."""
        folder = self.folder / name
        shutil.copytree(self.folder / "base", folder)
        with _endpoint(folder) as endpoint:
            yield endpoint, _job(folder, self.inputs, executor, endpoint)

    def undisturbed(self, executor: str) -> dict[str, Any]:
        """Return the line of an update without a kill."""
        with self.update(f"undisturbed-{executor}", executor) as (endpoint, job), stopwatch() as taken:
            report = _finished(job.start())
        return _line(f"undisturbed, {executor}", report, Counter(), audit(endpoint.log, ()), taken[0])

    def killed(self, number: int, n_kills: int, span_s: float, chance: random.Random) -> dict[str, Any]:
        """Return the line of an update with kills.

        Args:
            n_kills: at most so many.
            span_s: the longest time between two kills.
        """
        kills: Counter[str] = Counter()
        deaths: list[float] = []
        with self.update(f"killed-{number}", "ray") as (endpoint, job), stopwatch() as taken:
            life = job.start()
            life.has_begun()
            while kills.total() < n_kills and life.lasts(chance.uniform(0.0, span_s)):
                kind = chance.choice(KINDS)
                up = life.workers()
                if kind == "endpoint":
                    deaths.append(time.time())
                    endpoint.end(signal.SIGKILL)
                    life.lasts(chance.uniform(0.0, _DOWN_S))
                    endpoint.start()
                elif kind == "driver":
                    life.process.kill()
                    deaths.append(time.time())
                    life.process.wait()
                    deaths.extend(wait_for_deaths(up))
                    life = job.start()
                    life.has_begun()
                elif up:
                    chosen = chance.choice(up)
                    chosen.kill()
                    deaths.extend(wait_for_deaths([chosen]))
                else:
                    continue
                kills[kind] += 1
            report = _finished(life)
        return _line(f"update {number}", report, kills, audit(endpoint.log, deaths), taken[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.update_kills",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1, help="of what is killed and when")
    parser.add_argument(
        "--span-s", type=float, default=0.0, help="the longest time between two kills; default: half of an update"
    )
    parser.add_argument("--keep", type=Path, help="keep indexes and logs in this folder")
    arguments = parser.parse_args()
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="hirag-update-kills-"))
    try:
        lines = list(_drilled(prepared(folder), arguments.kills, arguments.seed, arguments.span_s))
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(any(not line["same_snapshot"] or line["paid_twice_other"] for line in lines))


def prepared(folder: Path) -> Drill:
    """Build the index that is updated, and write the documents of the update."""
    names = sorted(file.name for file in CORPUS.iterdir())
    before, after = folder / "before", folder / "after"
    shutil.copytree(CORPUS, after)
    for place in (before, after):
        place.mkdir(parents=True, exist_ok=True)
    for name in names[:-N_ADDED]:
        shutil.copy(CORPUS / name, before / name)
    edited = after / names[0]
    edited.write_text(f"{edited.read_text('utf-8')}\n\n{EDIT}\n", encoding="utf-8")
    (after / names[1]).unlink()
    base = folder / "base"
    base.mkdir()
    with _endpoint(base) as endpoint:
        _finished(_job(base, (str(before),), "inline", endpoint).start())
    return Drill(folder, (str(after),))


def _drilled(drill: Drill, n_kills: int, seed: int, span_s: float) -> Iterator[dict[str, Any]]:
    chance = random.Random(seed)
    undisturbed = [drill.undisturbed("inline")]
    expected, n_paid = undisturbed[0]["snapshot"], undisturbed[0]["replies"]
    if not span_s:
        undisturbed.append(drill.undisturbed("ray"))
        span_s = undisturbed[1]["seconds"] / 2
    sums: Counter[str] = Counter()
    kills: Counter[str] = Counter()
    lines: list[dict[str, Any]] = []
    while len(lines) < len(undisturbed) or kills.total() < n_kills:
        number = len(lines) - len(undisturbed) + 1
        if number < 1:
            line = undisturbed[len(lines)]
        else:
            line = drill.killed(number, n_kills - kills.total(), span_s, chance)
            kills += Counter(line["kills"])
            sums += Counter({name: line[name] for name in ("paid_twice_in_flight", "paid_twice_other", "seconds")})
        line |= {"same_snapshot": line["snapshot"] == expected, "more_than_undisturbed": line["replies"] - n_paid}
        lines.append(line)
        print(json.dumps(line), flush=True)
        yield line
    print(
        json.dumps(
            {
                "benchmark": "update_kills",
                "case": "all",
                "seed": seed,
                "updates": len(lines) - len(undisturbed),
                "kills": dict(kills),
                "n_kills": kills.total(),
                "same_snapshot": all(line["same_snapshot"] for line in lines),
                **{name: round(sums[name], 1) for name in ("paid_twice_in_flight", "paid_twice_other", "seconds")},
            }
        )
    )


def _line(case: str, report: dict[str, Any], kills: Counter[str], paid: Audit, seconds: float) -> dict[str, Any]:
    for example in paid.examples[:3]:
        print(f"{case}: paid twice: {example}", file=sys.stderr)
    return {
        "benchmark": "update_kills",
        "case": case,
        "kills": dict(kills),
        "snapshot": report["snapshot"],
        "replies": paid.replies,
        "paid_twice_in_flight": paid.in_flight,
        "paid_twice_other": paid.other,
        "seconds": round(seconds, 1),
    }


@contextmanager
def _endpoint(folder: Path) -> Iterator[Endpoint]:
    """Give an endpoint whose log continues that of the folder."""
    endpoint = Endpoint(folder, (*PACE, "--seed", "0"))
    try:
        yield endpoint
    finally:
        endpoint.end(signal.SIGTERM)


def _job(folder: Path, inputs: tuple[str, ...], executor: str, endpoint: Endpoint) -> Job:
    job = Job(folder, inputs, executor, {"execution": {"workers": 2}})
    job.configure(endpoint.url, TIMEOUT_S)
    return job


def _finished(life: Life) -> dict[str, Any]:
    code, report = life.finish()
    if code:
        raise Failed(f"an update ended incomplete: {report['dead_letters']} dead letters")
    return report


if __name__ == "__main__":
    main()
