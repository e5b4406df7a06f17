"""Two processes that write the same object of an S3 server at one moment: one of them must win, every time.

    python -m benchmarks.lock_races [--rounds 200] [--slow-s 1.5] [--uri s3://BUCKET/FOLDER]

The cases: a free lock (`If-None-Match: *`), an expired lock (`If-Match`), and the publication of a snapshot by two
builds that read the same `current` (`If-Match`). In every tenth round the server holds the next put back for --slow-s
seconds, and in the others for a random time below 20 ms. Without --uri the server is moto on loopback with atomic
requests (tests/storage/s3_server.py); with it, no put is held back. One JSON line a case: rounds with one winner, with
two and with none, and seconds. The exit code is 1 unless every round has one winner.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from hirag_dist.errors import IndexBusy
from hirag_dist.storage.layout import LOCK
from hirag_dist.storage.lock import BuildLock, LockTiming
from hirag_dist.storage.lock_holder import LockHolder, own_process
from hirag_dist.storage.snapshot.reader import read_current
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from tests.storage.s3_server import S3Server, s3_server

CASES = ("free lock", "expired lock", "current")
MAX_HOLD_S = 0.02
Contenders = list["subprocess.Popen[str]"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--slow-s", type=float, default=1.5)
    parser.add_argument("--uri")
    parser.add_argument("--contender", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        contend()
        return
    command = [sys.executable, "-m", "benchmarks.lock_races", "--contender"]
    good = True
    with ExitStack() as stack:
        server, uri = (None, arguments.uri) if arguments.uri else stack.enter_context(s3_server())
        contenders = [
            stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        for case in CASES:
            started = time.perf_counter()
            winners: Counter[int] = Counter()
            for number in range(arguments.rounds):
                if server is not None:
                    hold(server, number, arguments.slow_s)
                winners[one_round(contenders, case, uri)] += 1
            line: dict[str, Any] = {"one_winner": winners[1], "two_winners": winners[2], "no_winner": winners[0]}
            line["seconds"] = round(time.perf_counter() - started, 1)
            print(json.dumps({"benchmark": "lock_races", "case": case, "rounds": arguments.rounds} | line), flush=True)
            good = good and winners[1] == arguments.rounds
        for contender in contenders:
            assert contender.stdin is not None
            contender.stdin.close()
    raise SystemExit(not good)


def hold(server: S3Server, number: int, slow_s: float) -> None:
    """Hold back the put that reaches the server next."""
    server.delay_s = slow_s if number % 10 == 5 else random.Random(number).uniform(0, MAX_HOLD_S)


def one_round(contenders: Contenders, case: str, uri: str) -> int:
    """Return how many of the contenders won."""
    store = Store(uri)
    store.delete(LOCK)
    if case == "expired lock":
        own = own_process()
        dead = LockHolder(replace(own, pid_namespace="another"), "", "dead", 0.0, -2 * LockTiming().dead_after_s, 1)
        store.write_bytes(LOCK, dead.encode())
    if case == "current":
        make_current(store, "first")
    for contender in contenders:
        ask(contender, {"case": case, "uri": uri})
    for contender in contenders:  # both have read what they need
        assert reply(contender) == "ready"
    at = time.monotonic() + 0.01
    for contender in contenders:
        ask(contender, at)
    results = [reply(contender) for contender in contenders]
    for contender in contenders:
        ask(contender, "end")
        assert reply(contender) == "ended"
    return results.count("won")


def contend() -> None:
    """Take part in rounds as they are given on stdin, until it ends."""
    for line in sys.stdin:
        given = json.loads(line)
        store = Store(given["uri"])
        before = read_current(store) if given["case"] == "current" else None
        store.read_version(LOCK)  # opens the connection
        print("ready", flush=True)
        time.sleep(max(0.0, json.loads(sys.stdin.readline()) - time.monotonic()))
        with ExitStack() as stack:
            try:
                if given["case"] == "current":
                    make_current(store, f"{time.monotonic_ns()}", before)
                else:
                    stack.enter_context(BuildLock(store)).check()
                print("won", flush=True)
            except IndexBusy:
                print("lost", flush=True)
            sys.stdin.readline()
        print("ended", flush=True)


def ask(contender: subprocess.Popen[str], value: object) -> None:
    assert contender.stdin is not None
    print(json.dumps(value), file=contender.stdin, flush=True)


def reply(contender: subprocess.Popen[str]) -> str:
    assert contender.stdout is not None
    return contender.stdout.readline().strip()


if __name__ == "__main__":
    main()
