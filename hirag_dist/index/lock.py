"""One build at a time on an index: a lock file with a heartbeat, taken over when its holder is dead."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from hirag_dist.errors import IndexBusy, StoreError
from hirag_dist.index.layout import LOCK
from hirag_dist.index.store import Store

_BEAT_S = 10.0
_DEAD_AFTER_S = 60.0


class BuildLock:
    """Held while a build runs; a context manager.

    Raises:
        IndexBusy: on entering, when another live build holds the index; it says who.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._token = uuid.uuid4().hex
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> BuildLock:
        with self._one_at_a_time():
            holder = self._holder()
            if holder is not None and _alive(holder):
                raise IndexBusy(
                    f"{self._store.uri} is being built by process {holder['pid']} on {holder['host']} since "
                    f"{holder['since']}; wait for it, or end it"
                )
            self._since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            self._beat()
        now = self._holder()
        if now is None or now["token"] != self._token:
            raise IndexBusy(f"another build of {self._store.uri} started at the same moment; wait for it")
        self._thread = threading.Thread(target=self._keep_beating, daemon=True, name="build-lock")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        holder = self._holder()
        if holder is not None and holder["token"] == self._token:
            self._store.delete(LOCK)

    @contextmanager
    def _one_at_a_time(self) -> Iterator[None]:
        """Keep other processes from looking and writing between our look and our writing; on local folders only."""
        if self._store.local is None:
            yield
            return
        self._store.local.mkdir(parents=True, exist_ok=True)
        with open(self._store.local / f".{LOCK}.guard", "wb") as guard:
            fcntl.flock(guard, fcntl.LOCK_EX)  # let go when the file is closed
            yield

    def _holder(self) -> dict[str, Any] | None:
        if not self._store.exists(LOCK):
            return None
        try:
            found = self._store.read_json(LOCK)
        except StoreError:
            return None  # removed or rewritten at this moment, or cut off by a crash
        known = isinstance(found, dict) and {"host", "pid", "since", "token", "beat"} <= set(found)
        return found if known else None

    def _beat(self) -> None:
        self._store.write_json(
            LOCK,
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "since": self._since,
                "token": self._token,
                "beat": time.time(),
            },
        )

    def _keep_beating(self) -> None:
        while not self._stop.wait(_BEAT_S):
            with suppress(StoreError):  # a full disk is the build's to tell; the next beat may land
                self._beat()


def _alive(holder: dict[str, Any]) -> bool:
    if time.time() - float(holder["beat"]) >= _DEAD_AFTER_S:
        return False  # here too: its process id may be another's by now
    if holder["host"] == socket.gethostname():
        try:
            os.kill(int(holder["pid"]), 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return int(holder["pid"]) != os.getpid()
    return True
