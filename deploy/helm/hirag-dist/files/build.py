"""Run the commands of a build. Arguments come from a file, so that no shell interprets them.

    python build.py ORDER.json [CODE…]      {"config": PATH, "build": ["index", …], "retry": ["retry", …],
                                             "prune": ["prune", …], "accepted": [3]}

All commands get the same copy of the configuration, because an upgrade of the release may change the mounted file.

`retry`, if given, follows a build that left dead letters (exit code 3), and its exit code replaces that of the build;
`prune`, if given, follows success. Accepted exit codes, from the order or as a CODE, become 0. SIGTERM is passed on as
SIGINT: the build stores the replies in flight, and no further command starts.
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
    """Runs commands of hirag-dist, one after the other, until it is stopped."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def stop(self, *_: object) -> None:
        """Interrupt the running command and start no other."""
        self._stopped = True
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)

    def run(self, arguments: list[str]) -> int:
        """Run a command and return its exit code, 128 + N after signal N."""
        if self._stopped:
            return INTERRUPTED
        # Its own process group, so that it gets a signal once: from this process, not also from the group.
        self._process = subprocess.Popen(["hirag-dist", *arguments], process_group=0)
        if self._stopped:  # stopped in the meantime
            self._process.send_signal(signal.SIGINT)
        code = self._process.wait()
        return code if code >= 0 else 128 - code


def run(order: dict[str, Any], runner: Runner) -> int:
    """Run the commands of an order and return the exit code."""
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
    """Read the order and run it."""
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
