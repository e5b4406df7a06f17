"""Cost of the ledger: durable storing, opening, looking up, compacting.

Prints JSON lines. Replies are texts of about 1.5 KB, or with --vectors embeddings of 1,536 floats.

    python benchmarks/ledger.py [--records 10000 100000 1000000] [--vectors] [--folder DIR]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from hirag_dist.llm.reply_store import Ledger, compact, ledger_size
from hirag_dist.storage.store import Store

N_GETS = 2000
WORDS = ("whale", "ship", "sea", "captain", "harpoon", "sail", "mast", "ocean", "island", "voyage", "storm", "tide")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--vectors", action="store_true", help="embeddings instead of texts")
    parser.add_argument("--folder", help="where to write; the system's temporary folder without it")
    parser.add_argument("--read", help=argparse.SUPPRESS)  # a process of its own: look up in this folder
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(asyncio.run(look_up(Store(arguments.read), arguments.records[0]))))
        return
    for n_records in arguments.records:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            store = Store(folder)
            case = {"benchmark": "ledger", "records": n_records, "values": "vectors" if arguments.vectors else "texts"}
            show(case | {"step": "put"} | asyncio.run(put_all(store, n_records, arguments.vectors)))
            show(case | {"step": "look up, as written"} | in_a_process(folder, n_records))
            show(case | {"step": "compact"} | compact_all(store))
            show(case | {"step": "look up, compacted"} | in_a_process(folder, n_records))


def show(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def key(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()[:40]


def value(number: int, vectors: bool) -> dict[str, Any]:
    chance = random.Random(number)
    if vectors:
        return {"vector": chance.randbytes(6144), "tokens": 100}
    return {
        "text": " ".join(chance.choices(WORDS, k=260)),
        "finish_reason": "stop",
        "model": "m",
        "usage": [900, 0, 300],
    }


async def put_all(store: Store, n_records: int, vectors: bool) -> dict[str, Any]:
    """Store records, 256 at a time as from so many calls in flight."""
    ledger = Ledger(store)
    spent = 0.0
    for first in range(0, n_records, 4096):
        batch = [(key(n), value(n, vectors)) for n in range(first, min(first + 4096, n_records))]
        started = time.perf_counter()
        for at in range(0, len(batch), 256):
            await asyncio.gather(*(ledger.put(name, each) for name, each in batch[at : at + 256]))
        spent += time.perf_counter() - started
    started = time.perf_counter()
    await ledger.close()
    spent += time.perf_counter() - started
    return {
        "puts_a_second": round(n_records / spent),
        "file_bytes_a_record": round(ledger_size(store).n_bytes / n_records),
    }


def in_a_process(folder: str, n_records: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--read", folder, "--records", str(n_records)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


async def look_up(store: Store, n_records: int) -> dict[str, Any]:
    """Open, and get records one by one and in batches. Cold: not in this process; the system's cache may have them."""
    drop_caches(store)
    process = psutil.Process(os.getpid())
    await Ledger(store).get(key(-1))
    before = process.memory_info().rss
    started = time.perf_counter()
    ledger = Ledger(store)
    await ledger.get(key(-1))
    opened = time.perf_counter() - started
    chosen = random.Random(0).sample(range(n_records), min(N_GETS, n_records))
    rates = {}
    for name in ("cold", "again"):
        started = time.perf_counter()
        for n in chosen:
            assert await ledger.get(key(n)) is not None
        rates[f"gets_a_second_{name}"] = round(len(chosen) / (time.perf_counter() - started))
    few = chosen[:100]
    started = time.perf_counter()
    for _ in range(20):
        for n in few:
            await ledger.get(key(n))
    rates["gets_a_second_hot"] = round(20 * len(few) / (time.perf_counter() - started))
    started = time.perf_counter()
    for n in range(N_GETS):
        assert await ledger.get(key(-2 - n)) is None
    rates["misses_a_second"] = round(N_GETS / (time.perf_counter() - started))
    batches = [random.Random(n).sample(range(n_records), 512) for n in range(4)]
    started = time.perf_counter()
    for batch in batches:
        assert len(await ledger.get_many([key(n) for n in batch])) == 512
    rates["gets_a_second_512_at_once"] = round(len(batches) * 512 / (time.perf_counter() - started))
    started = time.perf_counter()
    await ledger.refresh()
    return {
        "files": len(store.names("ledger")),
        "open_ms": round(opened * 1e3, 2),
        "refresh_ms": round((time.perf_counter() - started) * 1e3, 2),
        **rates,
        "bytes_a_key": round(ledger.memory_bytes / n_records, 2),
        "process_grew_mb": round((process.memory_info().rss - before) / 1e6, 1),
    }


def drop_caches(store: Store) -> None:
    """Have the system forget what it has read of the ledger."""
    for file in (Path(store.root) / "ledger").iterdir():
        handle = os.open(file, os.O_RDONLY)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def compact_all(store: Store) -> dict[str, Any]:
    started = time.perf_counter()
    done = compact(store)
    seconds = time.perf_counter() - started
    return {
        "seconds": round(seconds, 2),
        "mb_read": round(done.bytes_read / 1e6, 1),
        "mb_a_second": round(done.bytes_read / 1e6 / seconds, 1),
        "merges": done.merges,
        "process_peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1),
    }


if __name__ == "__main__":
    main()
