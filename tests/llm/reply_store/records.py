"""Records that tests put into a ledger, and what a reader finds of them."""

from __future__ import annotations

import hashlib
import json
import random
import socket
from functools import cache

from hirag_dist.llm.reply_store import CompactionSizes
from hirag_dist.llm.reply_store.block_format import Record, pack_block
from hirag_dist.llm.reply_store.reader import LedgerReader
from hirag_dist.storage.store import Store

TINY = CompactionSizes(
    segment_bytes=2000, batch_bytes=1500, block_bytes=300, min_logs=2, segment_records=40, fan_in=3, min_tier_bytes=2000
)


def key(what: object) -> str:
    return hashlib.sha256(str(what).encode()).hexdigest()[:40]


@cache
def record(n: int, at: float = 1.0) -> Record:
    value = json.dumps({"n": n, "text": random.Random(n).randbytes(20).hex()}).encode()
    return Record(bytes.fromhex(key(n)), at, len(value).to_bytes(4, "little") + value)


def put_log(store: Store, number: int, records: list[Record]) -> None:
    """A log as a process of this machine leaves it that was killed: in groups, and cut off at its end."""
    name = f"ledger/{socket.gethostname()}-1-{number:08x}.log"
    for first in range(0, len(records), 10):
        store.append(name, pack_block(records[first : first + 10]))
    store.append(name, pack_block([record(-1)])[:-1])


def everything(store: Store, numbers: range) -> list[int]:
    """The numbers whose records a new reader finds, as they were stored."""
    view = LedgerReader(store)
    view.refresh()
    found = view.find([record(n).key for n in numbers])
    return [n for n in numbers if found.get(record(n).key) == record(n)]


def names(store: Store, ending: str) -> list[str]:
    return [name for name in store.names("ledger") if ending in name]
