"""Runs hirag-dist as an order says: arguments come from a file, so that no shell on the way reads them.

    python build.py ORDER.json [CODE…]      {"arguments": ["index", …], "accepted": [3]}

Exit codes that are accepted, by the order or as a CODE, become 0. SIGTERM is passed on as SIGINT, at which a build
stores the replies in flight.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path


def run(arguments: list[str], accepted: set[int]) -> int:
    """Run hirag-dist to its end; return the exit code to end with."""
    # A group of its own: of what is sent to ours, it is to get what we pass on, once.
    process = subprocess.Popen(["hirag-dist", *arguments], process_group=0)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
    code = process.wait()
    if code in accepted:
        print(f"hirag-dist ended with exit code {code}, which is accepted", file=sys.stderr)
        return 0
    return code if code >= 0 else 128 - code  # as shells say that a signal ended it


if __name__ == "__main__":
    order = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(run(order["arguments"], {*order["accepted"], *map(int, sys.argv[2:])}))
