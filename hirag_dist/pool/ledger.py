"""Every paid reply, durable before it is used, found again by what was asked.

Each process appends to a segment of its own, a JSON line a reply, in groups: within 100 ms or 64 replies, whichever
is first. A line cut off by a crash is ignored; its reply was still in flight. Opening reads all segments for their
keys and keeps places, not replies: about 150 bytes a reply.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
import uuid
from dataclasses import dataclass
from typing import Any

from hirag_dist.errors import StoreError
from hirag_dist.index.layout import LEDGER
from hirag_dist.index.store import Store

_GROUP_SIZE = 64
_GROUP_S = 0.1


@dataclass(frozen=True, slots=True)
class _Place:
    file: str
    offset: int
    length: int
    at: float  # when it was stored: of two records of one key the first counts, for every reader


class Ledger:
    """The replies of one index. One instance serves one event loop."""

    def __init__(self, store: Store) -> None:
        """Open the ledger of a store and read the keys of all segments."""
        self._store = store
        self._segment = f"{LEDGER}/{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.jsonl"
        self._places: dict[str, _Place] = {}
        self._waiting: list[tuple[str, float, bytes, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._writes: set[asyncio.Task[None]] = set()
        self._read_to: dict[str, int] = {}
        self.catch_up()

    def __len__(self) -> int:
        return len(self._places)

    def catch_up(self) -> None:
        """See what other processes have stored since: new segments, and what was added to known ones."""
        for name in self._store.names(LEDGER):
            file = f"{LEDGER}/{name}"
            known = self._read_to.get(file, 0)
            if file != self._segment and (self._store.size(file) or 0) > known:
                self._read_segment(file, known)

    async def refresh(self) -> None:
        self.catch_up()

    async def close(self) -> None:
        pass

    async def get_many(self, keys: Any) -> dict[str, dict[str, Any]]:
        return {key: record for key in keys if (record := await self.get(key)) is not None}

    async def put_many(self, records: Any) -> None:
        await asyncio.gather(*(self.put(key, value) for key, value in records.items()))

    async def get(self, key: str) -> dict[str, Any] | None:
        """Return a record, None where there is none."""
        place = self._places.get(key)
        if place is None:
            return None
        line = self._store.read_range(place.file, place.offset, place.length)
        record = json.loads(line)
        return dict(record["value"])

    async def put(self, key: str, value: dict[str, Any]) -> None:
        """Store a record; return when it is durable.

        Raises:
            StoreError: it could not be written. Nothing that depends on it may be used then.
        """
        at = time.time()
        line = (
            json.dumps(
                {"key": key, "at": at, "value": value},
                ensure_ascii=False,
                default=lambda b: __import__("base64").b64encode(b).decode(),
            ).encode("utf-8", "surrogatepass")
            + b"\n"
        )
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((key, at, line, done))
        if len(self._waiting) >= _GROUP_SIZE:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(_GROUP_S, self._flush)
        await done

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        group, self._waiting = self._waiting, []
        if group:
            task = asyncio.get_running_loop().create_task(self._write(group))
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, group: list[tuple[str, float, bytes, asyncio.Future[None]]]) -> None:
        try:
            data = b"".join(line for _, _, line, _ in group)
            file, offset = await asyncio.to_thread(self._store.append, self._segment, data)
        except StoreError as error:
            for *_, done in group:
                if not done.done():
                    done.set_exception(StoreError(str(error)))
            return
        for key, at, line, done in group:
            self._keep(key, _Place(file, offset, len(line), at))
            offset += len(line)
            if not done.done():
                done.set_result(None)

    def _read_segment(self, file: str, start: int) -> None:
        data = self._store.read_bytes(file) if start == 0 else self._tail(file, start)
        offset = start
        for line in data.splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break  # cut off by a crash, or being written at this moment
            try:
                record = json.loads(line)
                key, at = record["key"], float(record.get("at", 0.0))
            except (ValueError, KeyError, TypeError, AttributeError):
                key, at = None, 0.0
            if isinstance(key, str):
                self._keep(key, _Place(file, offset, len(line), at))
            offset += len(line)
        self._read_to[file] = offset

    def _tail(self, file: str, start: int) -> bytes:
        return self._store.read_range(file, start, (self._store.size(file) or start) - start)

    def _keep(self, key: str, place: _Place) -> None:
        known = self._places.get(key)
        if known is None or (place.at, place.file, place.offset) < (known.at, known.file, known.offset):
            self._places[key] = place
