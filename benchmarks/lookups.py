"""Time of look-ups in process: entities by id and by name, names that are not there, paths, communities, documents.

Prints JSON lines, one for each kind of look-up and size: milliseconds of the first, which computes what it needs of
the index, and p50, p95 and p99 of the following ones, one at a time. Snapshots are generated (`generated.py`) and kept
in --folder, or an index that is there is read with --index.

    python benchmarks/lookups.py [--sizes 10000 100000 1000000] [--folder DIR] [--index DIR] [--count 300]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.generated import generate
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.errors import NotFound
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

PERCENTILES = (50, 95, 99)
Lookup = Callable[[int], Awaitable[object]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000], help="entities")
    parser.add_argument("--folder", help="where generated snapshots are kept and found again")
    parser.add_argument("--index", help="an index that is there, instead of generated ones")
    parser.add_argument("--count", type=int, default=300, help="look-ups of each kind")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        if arguments.index:
            asyncio.run(measure(arguments.index, arguments.count))
            return
        for size in arguments.sizes:
            store = Store(str(folder / f"{size}"))
            if current_id(store) is None:
                generate(store, size)
            asyncio.run(measure(store.uri, arguments.count))


async def measure(uri: str, count: int) -> None:
    """Print the times of one index."""
    snapshot = open_snapshot(Store(uri))
    built = snapshot.manifest
    config = load_config(None, {}, {"vectors.backend": "memory"}).config
    engine = make_engine(config, snapshot, Prompts())
    try:
        for kind, lookup in _lookups(engine, snapshot, count).items():
            took = []
            for at in range(count + 1):
                started = time.perf_counter()
                await lookup(at)
                took.append((time.perf_counter() - started) * 1e3)
            line: dict[str, Any] = {"benchmark": "lookups", "case": kind, "entities": built.counts["entities"]}
            values = np.percentile(took[1:], PERCENTILES).round(3).tolist()
            times = {f"p{percent}_ms": value for percent, value in zip(PERCENTILES, values, strict=True)}
            print(json.dumps(line | {"first_ms": round(took[0], 1)} | times), flush=True)
    finally:
        await engine.close()


def _lookups(engine: QueryEngine, snapshot: Snapshot, count: int) -> dict[str, Lookup]:
    """Return look-ups by kind; each takes the number of the look-up."""
    random = np.random.default_rng(0)
    entities = _sample(snapshot, "entities", ["entity_id", "name"], random, count + 2)
    communities = _sample(snapshot, "communities", ["community_id"], random, count + 1)
    documents = _sample(snapshot, "documents", ["document_id"], random, count + 1)
    hub = int(np.argmax(np.diff(snapshot.graph.indptr)))
    hub_id = snapshot.table("entities", ["entity_id"])["entity_id"][hub].as_py()

    async def unknown(at: int) -> None:
        try:
            await engine.get_entity(f"{entities[at]['name']}x unknown")
        except NotFound:
            return

    return {
        "entity by id": lambda at: engine.get_entity(entities[at]["entity_id"]),
        "entity by name": lambda at: engine.get_entity(entities[at]["name"]),
        "entity with the most relations": lambda at: engine.get_entity(hub_id),
        "unknown name": unknown,
        "path": lambda at: engine.find_path(entities[at]["entity_id"], entities[at + 1]["entity_id"]),
        "community": lambda at: engine.get_community(communities[at]["community_id"]),
        "document": lambda at: engine.get_document(documents[at]["document_id"]),
    }


def _sample(
    snapshot: Snapshot, table: str, columns: Sequence[str], random: np.random.Generator, count: int
) -> list[dict[str, Any]]:
    rows = snapshot.table(table, columns)
    chosen: list[dict[str, Any]] = rows.take(random.integers(rows.num_rows, size=count)).to_pylist()
    return chosen


if __name__ == "__main__":
    main()
