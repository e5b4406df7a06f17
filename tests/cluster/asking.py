"""Clients that ask a service until they are stopped: python asking.py ADDRESS TOKEN QUESTION.

Writes a line of JSON each second: answered, failed, the last error, the snapshot of the last answer.
"""

import json
import sys
import threading
import time

from hirag_dist.client import HiragClient

address, token, question = sys.argv[1:]
counts = {"answered": 0, "failed": 0, "error": "", "snapshot": ""}


def ask() -> None:
    """Ask until the process ends."""
    with HiragClient(address, token=token) as client:
        while True:
            try:
                counts["snapshot"] = client.retrieve(question).snapshot_id
                counts["answered"] += 1
            except Exception as error:
                counts["failed"] += 1
                counts["error"] = str(error)[:300]
                time.sleep(0.1)


for _ in range(4):
    threading.Thread(target=ask, daemon=True).start()
while True:
    print(json.dumps(counts), flush=True)
    time.sleep(1)
