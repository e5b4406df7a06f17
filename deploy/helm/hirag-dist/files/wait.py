"""Wait until an index has a snapshot to serve.

python wait.py URI
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from hirag_dist.errors import StoreError
from hirag_dist.storage.snapshot.reader import current_id
from hirag_dist.storage.store import Store

POLL_S = 5.0


def wait(uri: str, sleep: Callable[[float], None] = time.sleep) -> str:
    """Return the id of the current snapshot as soon as there is one; print the reason for waiting when it changes."""
    reported = ""
    while True:
        try:
            found = current_id(Store(uri))
            said = "there is no snapshot yet"
        except StoreError as error:  # the storage may not be ready yet
            found, said = None, str(error)
        if found is not None:
            print(f"snapshot {found}", file=sys.stderr)
            return found
        if said != reported:
            print(f"waiting: {said}", file=sys.stderr, flush=True)
            reported = said
        sleep(POLL_S)


if __name__ == "__main__":
    wait(sys.argv[1])
