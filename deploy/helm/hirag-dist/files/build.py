"""Runs a build as an order says: arguments come from a file, so that no shell on the way reads them.

    python build.py ORDER.json [CODE…]      {"config": PATH, "build": ["index", …], "retry": ["retry", …],
                                             "prune": ["prune", …], "accepted": [3]}

All commands are given one copy of the configuration: an upgrade of the release may change what is mounted meanwhile.

`retry`, if it is there, follows a build that left dead letters (exit code 3), and its exit code takes the place of the
build's; `prune`, if it is there, follows what succeeded. Exit codes that are accepted, by the order or as a CODE,
become 0. SIGTERM is passed on as SIGINT, at which a build stores the replies in flight, and nothing more is begun.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

INCOMPLETE = 3
INTERRUPTED = 130


class Runner:
    """Runs commands of hirag-dist, one after the other, until it is told to stop."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def stop(self, *_: object) -> None:
        """Interrupt the command that runs, and begin no other."""
        self._stopped = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def run(self, arguments: list[str]) -> int:
        """Run a command to its end; return its exit code, as shells say it where a signal ended it."""
        if self._stopped:
            return INTERRUPTED
        # A group of its own: of what is sent to ours, it is to get what we pass on, once.
        self._process = subprocess.Popen(["hirag-dist", *arguments], process_group=0)
        if self._stopped:  # told so meanwhile
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def run(order: dict[str, Any], runner: Runner) -> int:
    """Run the order's commands; return the exit code to end with."""
    config = ["--config", order["config"]]
    code = runner.run([*order["build"], *config])
    if code == INCOMPLETE and "retry" in order:
        code = runner.run([*order["retry"], *config])
    ended = _accept(code, order["accepted"])
    if ended == 0 and code in (0, INCOMPLETE) and "prune" in order:
        ended = _accept(runner.run([*order["prune"], *config]), order["accepted"])
    return ended


def _accept(code: int, accepted: list[int]) -> int:
    if code == 0 or code not in accepted:
        return code
    print(f"hirag-dist ended with exit code {code}, which is accepted", file=sys.stderr)
    return 0


def main() -> int:
    """Read the order, and run it."""
    runner = Runner()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, runner.stop)
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    order["accepted"] += map(int, sys.argv[2:])
    with tempfile.TemporaryDirectory() as folder:
        order["config"] = shutil.copy(order["config"], folder)
        return run(order, runner)


if __name__ == "__main__":
    sys.exit(main())
