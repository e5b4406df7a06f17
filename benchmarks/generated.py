"""Made-up indexes of any size: complete snapshots, written by the package's own writer.

Entities in nested communities with degrees of a heavy tail, five relations each, layers of summary entities, unit
vectors that cluster as the communities do, and texts cut from the sample corpus. The same seed gives the same snapshot.

    python benchmarks/generated.py FOLDER [--entities 1000000] [--seed 0]

Prints a JSON line: the snapshot, what is in it, and what making it took. A million entities take some 70 s of one
core, 6 GB of memory and 4 GB of disk while it works; more than three million do not fit Arrow's arrays of strings.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.generated_tables import (
    Chunks,
    clusters_table,
    entities_table,
    layers_table,
    relations_table,
    reports_table,
)
from benchmarks.planted import DECAY
from benchmarks.planted_graph import PlantedGraph, plant_graph
from benchmarks.prose import Prose
from hirag_dist import schemas
from hirag_dist.core.graph.communities import community_table
from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.vectors import Vectors
from hirag_dist.indexing.publish import ARRAYS
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.storage.layout import TABLES
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.snapshot.writer import make_current, write_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix

RELATIONS_AN_ENTITY = 5
SPREAD = 2.0  # of entities about the centre of their community, where centres have a spread of 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    started = time.perf_counter()
    manifest = generate(Store(arguments.folder), arguments.entities, arguments.seed)
    line = {
        "benchmark": "generated",
        "snapshot": manifest.snapshot_id,
        "counts": dict(manifest.counts),
        "seconds": round(time.perf_counter() - started, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    print(json.dumps(line))


def generate(store: Store, n_entities: int, seed: int = 0) -> Manifest:
    """Write a snapshot with so many entities and five times as many relations, and make it the current one."""
    rng = np.random.default_rng(seed)
    prose = Prose()
    embedder = HashingEmbedder()
    graph = plant_graph(n_entities, RELATIONS_AN_ENTITY * n_entities, rng)
    chunks = Chunks(graph, prose, rng)
    entities, row_of = entities_table(graph, chunks, prose, rng)
    relations = relations_table(graph, entities["entity_id"], row_of, chunks, prose, rng)
    csr = build_graph(entities["entity_id"], relations)
    leaf = graph.leaf[np.argsort(row_of)]
    communities = community_table([group[leaf] for group in graph.groups], csr, entities["entity_id"])
    tables = {
        "documents": chunks.documents,
        "chunks": chunks.table,
        "entities": entities,
        "relations": relations,
        "clusters": clusters_table(graph, entities["entity_id"], row_of),
        "layers": layers_table(graph),
        "communities": communities,
        "reports": reports_table(communities, entities, relations, csr, prose, rng),
        "usage": schemas.USAGE.empty_table(),
        "rejects": schemas.REJECTS.empty_table(),
    }
    with tempfile.TemporaryDirectory() as folder:
        vectors = _Vectors(graph, embedder.dim, rng)
        arrays: dict[str, NDArray[Any]] = {
            "graph/indptr": csr.indptr,
            "graph/indices": csr.indices,
            "graph/weights": csr.weights,
            "graph/relation_rows": csr.relation_rows,
            "vectors/entities": vectors.write(f"{folder}/entities.npy", vectors.of_nodes(np.argsort(row_of)), SPREAD),
            "vectors/chunks": vectors.write(f"{folder}/chunks.npy", vectors.of_leaves(chunks.leaf), SPREAD / 2),
        }
        build = {"generated": {"entities": n_entities, "seed": seed}}
        manifest = write_snapshot(
            store, tables, arrays, embedder=embedder.name, complete=True, build=build, notes={"lineage": {}}
        )
    make_current(store, manifest.snapshot_id)
    return manifest


def variant(store: Store, own_id: str) -> Manifest:
    """Write a snapshot that differs from another of the store by one dead letter only, so that it has another id."""
    before = open_snapshot(store, own_id)
    tables = {name: before.table(name).cast(getattr(schemas, name.upper())) for name in TABLES}
    letter = {"stage": "variant", "unit_id": own_id, "reason": "made up", "attempts": 1, "request": "", "reply": ""}
    tables["rejects"] = pa.concat_tables([tables["rejects"], pa.Table.from_pylist([letter], schemas.REJECTS)])
    return write_snapshot(
        store,
        tables,
        {name: before.array(name) for name in ARRAYS},
        embedder=before.manifest.embedder,
        complete=False,
        build=before.manifest.build,
        notes=before.manifest.notes,
    )


class _Vectors:
    """Centres of communities in the falling spectrum that embeddings have; a child lies about its parent."""

    def __init__(self, graph: PlantedGraph, dim: int, rng: np.random.Generator) -> None:
        self._graph = graph
        self._rng = rng
        self._axes = np.arange(1, dim + 1, dtype=np.float32) ** np.float32(-DECAY / 2)
        share = np.float32(len(graph.groups) ** -0.5)
        self._centres = np.zeros((len(graph.groups[-1]), dim), np.float32)
        for group in graph.groups:
            self._centres += share * rng.standard_normal((int(group[-1]) + 1, dim), np.float32)[group]

    def of_leaves(self, leaves: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return for each row whose centre it lies about, and how near: 1 as far as an entity does."""
        return leaves, np.ones(len(leaves), np.float32)

    def of_nodes(self, nodes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the same of nodes in the order of their rows; a summary lies nearer, as a mean does."""
        layer_0 = nodes < self._graph.layer_sizes[0]
        return self._graph.leaf[nodes], np.where(layer_0, 1.0, 0.3).astype(np.float32)

    def write(self, path: str, places: tuple[NDArray[np.int64], NDArray[np.float32]], spread: float) -> FloatMatrix:
        """Write unit vectors block by block, and return them mapped."""
        leaves, distances = places
        out = np.lib.format.open_memmap(path, "w+", np.float32, (len(leaves), len(self._axes)))
        for first in range(0, len(leaves), 8192):
            part = slice(first, first + 8192)
            block = self._rng.standard_normal((len(leaves[part]), len(self._axes)), np.float32)
            block *= np.float32(spread) * distances[part, None]
            block += self._centres[leaves[part]]
            block *= self._axes
            block /= np.linalg.norm(block, axis=1, keepdims=True)
            out[part] = block
        out.flush()
        mapped: FloatMatrix = np.load(path, mmap_mode="r")
        return mapped


def questions(vectors: Vectors, count: int, seed: int = 0, noise: float = 1.0) -> FloatMatrix:
    """Return unit vectors near entities picked by chance, as questions about them are.

    Args:
        vectors: (n_entities, dim) unit vectors.
        noise: length of what is added to each, which has length 1.
    """
    rng = np.random.default_rng(seed)
    picked = np.array(vectors[np.sort(rng.choice(len(vectors), count, replace=count > len(vectors)))])
    other = rng.standard_normal(picked.shape, np.float32)
    picked += np.float32(noise) * other / np.linalg.norm(other, axis=1, keepdims=True)
    asked: FloatMatrix = rng.permutation(picked / np.linalg.norm(picked, axis=1, keepdims=True))
    return asked


if __name__ == "__main__":
    main()
