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
    """Runs commands of hirag-dist, one after the other, with one configuration, until it is told to stop."""

    def __init__(self, config: Path) -> None:
        self._config = config
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
        self._process = subprocess.Popen(["hirag-dist", *arguments, "--config", str(self._config)], process_group=0)
        if self._stopped:  # told so meanwhile
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def run(order: dict[str, Any], runner: Runner) -> int:
    """Run the order's commands; return the exit code to end with."""
    code = runner.run(order["build"])
    if code == INCOMPLETE and "retry" in order:
        code = runner.run(order["retry"])
    ended = _accept(code, order["accepted"])
    if ended == 0 and code in (0, INCOMPLETE) and "prune" in order:
        ended = _accept(runner.run(order["prune"]), order["accepted"])
    return ended


def _accept(code: int, accepted: list[int]) -> int:
    if code == 0 or code not in accepted:
        return code
    print(f"hirag-dist ended with exit code {code}, which is accepted", file=sys.stderr)
    return 0


def main() -> int:
    """Read the order, and run it."""
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(shutil.copy(order["config"], folder)))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, runner.stop)
        return run(order | {"accepted": [*order["accepted"], *map(int, sys.argv[2:])]}, runner)


if __name__ == "__main__":
    sys.exit(main())
