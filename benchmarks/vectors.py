"""Recall, speed and build time of each vector index.

Prints a JSON line for each set of vectors, index and filter: recall@20 against brute force in float64, and
milliseconds of one search alone and of 16 together.

    python benchmarks/vectors.py [--rows 10000 100000] [--index DIR --questions FILE] [--vectors memory milvus-lite]
        [--uri http://127.0.0.1:19530]

Without --uri no server is asked; `milvus-server` of the wheel `milvus` 2.3.5 starts one
(docs/how-to/choose-vector-search.md).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pymilvus import MilvusClient

from benchmarks.planted import plant
from hirag_dist import schemas
from hirag_dist.config.model import Config
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.retrieval.vector_index.memory import make_vector_index
from hirag_dist.retrieval.vector_index.milvus import MilvusVectors, collection_name
from hirag_dist.retrieval.vector_index.milvus.collection import drop, resolved
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot
from hirag_dist.storage.store import Store

LIMIT = 20
DIM = 384
NOISE = 0.05  # a coordinate; a query's cosine with its row is then about 0.7, as a question's with an entity
TOGETHER = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="*", type=int, default=[10_000])
    parser.add_argument("--index", help="an index to measure too; Milvus Lite writes into its folder")
    parser.add_argument("--questions", help="JSONL with `query`, for --index")
    parser.add_argument("--vectors", nargs="+", default=["memory", "milvus-lite"])
    parser.add_argument("--uri", help="of a Milvus server")
    parser.add_argument("--searches", type=int, default=200)
    arguments = parser.parse_args()
    backends = [*arguments.vectors, *(["milvus"] if arguments.uri else [])]
    with tempfile.TemporaryDirectory() as folder:
        for label, snapshot, queries in _sets(arguments, Path(folder)):
            for backend in backends:
                own = {"backend": backend, "uri": arguments.uri}
                for line in asyncio.run(_measured(snapshot, queries, own)):
                    print(json.dumps({"benchmark": "vectors", "set": label, "vectors": backend} | line), flush=True)


async def _measured(
    snapshot: Snapshot, queries: NDArray[np.float32], vectors: dict[str, object]
) -> list[dict[str, object]]:
    """Return a line for each filter; the collection is filled first and dropped at the end."""
    lines: list[dict[str, object]] = []
    config = Config.model_validate({"vectors": vectors})
    started = time.perf_counter()
    index = make_vector_index(config, snapshot)
    opened = time.perf_counter() - started
    for max_layer in (None, 0):
        expected = brute_force(snapshot, queries, max_layer)
        found, alone = [], []
        for query in queries:
            before = time.perf_counter()
            rows, _ = await index.search(query, LIMIT, max_layer)
            alone.append((time.perf_counter() - before) * 1e3)
            found.append(rows)
        hits = sum(len(np.intersect1d(own, true)) for own, true in zip(found, expected, strict=True))
        before = time.perf_counter()
        for first in range(0, len(queries), TOGETHER):
            batch = queries[first : first + TOGETHER]
            await asyncio.gather(*(index.search(query, LIMIT, max_layer) for query in batch))
        together = (time.perf_counter() - before) * 1e3 / len(queries)
        lines.append(
            {
                "rows": len(snapshot.entity_vectors),
                "index": index.index if isinstance(index, MilvusVectors) else "exact",
                "filter": "" if max_layer is None else f"layer <= {max_layer}",
                "recall_at_20": round(hits / sum(map(len, expected)), 4),
                "p50_ms": round(float(np.percentile(alone, 50)), 2),
                "p99_ms": round(float(np.percentile(alone, 99)), 2),
                f"ms_each_of_{TOGETHER}": round(together, 2),
                "fill_s": round(opened, 2),
            }
        )
    index.close()
    if isinstance(index, MilvusVectors):
        _drop(snapshot, vectors["uri"] if index.name == "milvus" else None)
    return lines


def _drop(snapshot: Snapshot, uri: object) -> None:
    """Drop the collection, so that the next index is built from scratch."""
    client = MilvusClient(str(uri or Path(str(snapshot.store.local)) / "milvus" / "milvus.db"))
    drop(client, resolved(client, collection_name(snapshot.manifest.snapshot_id)))
    client.close()


def brute_force(snapshot: Snapshot, queries: NDArray[np.float32], max_layer: int | None) -> list[NDArray[np.int64]]:
    """Return the rows of the nearest of each query, by scores in float64."""
    layers = snapshot.table("entities")["layer"].to_numpy()
    n_rows = len(layers) if max_layer is None else int((layers <= max_layer).sum())  # rows are sorted by layer
    scores = queries.astype(np.float64) @ np.asarray(snapshot.entity_vectors[:n_rows], np.float64).T
    return [np.argsort(-row, kind="stable")[:LIMIT] for row in scores]


def _sets(arguments: argparse.Namespace, folder: Path) -> Iterator[tuple[str, Snapshot, NDArray[np.float32]]]:
    for n_rows in arguments.rows:
        snapshot, queries = generated(folder / str(n_rows), n_rows, arguments.searches)
        yield f"generated {n_rows}", snapshot, queries
    if arguments.index:
        lines = Path(arguments.questions).read_text(encoding="utf-8").splitlines()
        questions = [json.loads(line)["query"] for line in lines if line][: arguments.searches]
        embedder = HashingEmbedder()
        yield "index", open_snapshot(Store(arguments.index)), asyncio.run(embedder.embed(questions))


def generated(folder: Path, n_rows: int, n_queries: int) -> tuple[Snapshot, NDArray[np.float32]]:
    """Return a snapshot of planted vectors, nine in ten in layer 0, and queries some way from some of them."""
    folder.mkdir()
    random = np.random.default_rng(n_rows)
    vectors = plant(folder, n_rows, DIM).vectors
    queries = vectors[random.integers(0, n_rows, n_queries)]
    queries = queries + NOISE * random.normal(size=queries.shape).astype(np.float32)
    queries /= np.linalg.norm(queries, axis=1, keepdims=True)
    entities = {
        "entity_id": [f"{row:08d}" for row in range(n_rows)],
        "layer": [int(row >= n_rows * 9 // 10) for row in range(n_rows)],
        "name": [f"n{row}" for row in range(n_rows)],
        "type": ["concept"] * n_rows,
        "description": [""] * n_rows,
        "described": [True] * n_rows,
        "n_mentions": [1] * n_rows,
        "chunk_ids": [[]] * n_rows,
    }
    names = ("documents", "chunks", "relations", "clusters", "layers", "communities", "reports", "usage", "rejects")
    tables = {name: getattr(schemas, name.upper()).empty_table() for name in names}
    tables["entities"] = pa.table(entities, schema=schemas.ENTITIES)
    arrays: dict[str, NDArray[Any]] = {
        "graph/indptr": np.zeros(n_rows + 1, np.int64),
        "graph/indices": np.zeros(0, np.int32),
        "graph/weights": np.zeros(0, np.float32),
        "graph/relation_rows": np.zeros(0, np.int32),
        "vectors/entities": vectors,
        "vectors/chunks": np.zeros((0, DIM), np.float32),
    }
    store = Store(str(folder / "index"))
    manifest = write_snapshot(store, tables, arrays, embedder="e", complete=True, build={}, notes={})
    return open_snapshot(store, manifest.snapshot_id), queries


if __name__ == "__main__":
    main()
