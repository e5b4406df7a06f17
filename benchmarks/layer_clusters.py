"""Clusters of the first layer of an index under other settings, and clusters drawn at random, to be read.

Takes the vectors of the extracted entities as they are in the index, and prints a JSON line for each reduction, number
of dimensions and covariance: clusters, memberships an entity, the share of members that occur in the commonest document
of their cluster, how much more often two related entities share a cluster than any two, the mean cosine between a
member and the mean of its cluster, and seconds of reduction and clustering.

With --draw, clusters of several indexes are drawn at random and printed in random order, so that a reader does not know
whose they are; the last line says it.

    python -m benchmarks.layer_clusters INDEX [--covariance tied diag spherical] [--reduce-dims 32 64] [--reduction pca]
    python -m benchmarks.layer_clusters INDEX… --draw 20
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter, defaultdict
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.config.model import ClusteringConfig
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import SoftClusters, soft_clusters
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store

KERNELS = CpuKernels()
SHOWN_CHARS = 230


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("indexes", nargs="+", metavar="INDEX")
    parser.add_argument("--reduction", nargs="+", choices=("pca", "umap"), default=["pca"])
    parser.add_argument("--reduce-dims", nargs="+", type=int, default=[ClusteringConfig().reduce_dims])
    parser.add_argument("--covariance", nargs="+", default=[ClusteringConfig().covariance])
    parser.add_argument("--draw", type=int, default=0, help="print so many clusters of each index; measure nothing")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args()
    snapshots = {index: open_snapshot(Store(index)) for index in options.indexes}
    if options.draw:
        draw(snapshots, options.draw, options.seed)
        return
    for index, snapshot in snapshots.items():
        layer = Layer(snapshot)
        for reduction, dims, covariance in product(options.reduction, options.reduce_dims, options.covariance):
            case = {"index": index, "reduction": reduction, "reduce_dims": dims, "covariance": covariance}
            print(json.dumps({"benchmark": "layer_clusters"} | case | layer.measured(reduction, dims, covariance)))


class Layer:
    """Vectors, documents and relations of the extracted entities of an index."""

    def __init__(self, snapshot: Snapshot) -> None:
        entities = snapshot.table("entities", ["entity_id", "layer", "chunk_ids"])
        own = entities["layer"].to_numpy() == 0
        self.vectors: Any = np.asarray(snapshot.entity_vectors)[own]
        documents = documents_of(snapshot)
        ids = np.asarray(entities["entity_id"].to_pylist())[own].tolist()
        self.documents = [documents[entity] for entity in ids]
        rows = {entity: row for row, entity in enumerate(ids)}
        ends = snapshot.table("relations", ["source_id", "target_id"]).to_pylist()
        pairs = [(rows.get(end["source_id"], -1), rows.get(end["target_id"], -1)) for end in ends]
        self.related = np.asarray([pair for pair in pairs if min(pair) >= 0 and pair[0] != pair[1]])

    def measured(self, reduction: str, dims: int, covariance: Any) -> dict[str, Any]:
        started = time.process_time()
        reduce = KERNELS.umap if reduction == "umap" else KERNELS.pca
        reduced = reduce(self.vectors, min(dims, len(self.vectors) - 1), 0)
        at_reduced = time.process_time()
        usual = ClusteringConfig()
        settings = ClusterSettings(usual.target_size, usual.max_size, usual.threshold, 0, covariance)
        found = soft_clusters(reduced, settings, KERNELS)
        ended = time.process_time()
        return {
            "entities": len(self.vectors),
            "clusters": len(found.sizes),
            "median": float(np.median(found.sizes)),
            "memberships_an_entity": round(len(found.rows) / len(self.vectors), 3),
            "commonest_document": round(self._commonest(found), 3),
            "related_lift": round(self._lift(found), 1),
            "cosine": round(self._cosine(found), 3),
            "reduce_cpu_s": round(at_reduced - started, 1),
            "cluster_cpu_s": round(ended - at_reduced, 1),
        }

    def _commonest(self, found: SoftClusters) -> float:
        of_cluster: dict[int, Counter[str]] = defaultdict(Counter)
        for cluster, row in zip(found.clusters.tolist(), found.rows.tolist(), strict=True):
            of_cluster[cluster].update(self.documents[row])
        return sum(max(counts.values()) for counts in of_cluster.values()) / len(found.rows)

    def _lift(self, found: SoftClusters) -> float:
        ones = np.ones(len(found.rows), np.float32)
        within = csr_array((ones, (found.rows, found.clusters)))
        together = csr_array(within @ within.T)
        together.setdiag(0)
        together.eliminate_zeros()
        n_rows = len(self.vectors)
        of_any = together.nnz / (n_rows * (n_rows - 1))
        of_related = np.count_nonzero(together[self.related[:, 0], self.related[:, 1]]) / max(len(self.related), 1)
        return float(of_related / of_any) if of_any else 0.0

    def _cosine(self, found: SoftClusters) -> float:
        ones = np.ones(len(found.rows), np.float32)
        means: NDArray[Any] = csr_array((ones, (found.clusters, found.rows))) @ self.vectors
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return float(np.mean(np.einsum("ij,ij->i", self.vectors[found.rows], means[found.clusters])))


def documents_of(snapshot: Snapshot) -> dict[str, set[str]]:
    """Return the documents that each entity occurs in."""
    chunks = snapshot.table("chunks", ["chunk_id", "document_id"]).to_pylist()
    document = {row["chunk_id"]: row["document_id"] for row in chunks}
    rows = snapshot.table("entities", ["entity_id", "chunk_ids"]).to_pylist()
    return {row["entity_id"]: {document[chunk] for chunk in row["chunk_ids"]} for row in rows}


def draw(snapshots: dict[str, Snapshot], number: int, seed: int) -> None:
    """Print clusters of the first layer of each index, in random order, and last whose they were."""
    drawn: list[tuple[str, list[str]]] = []
    for index, snapshot in snapshots.items():
        numbers = {key: n for n, key in enumerate(sorted(snapshot.table("documents")["document_id"].to_pylist()))}
        documents = documents_of(snapshot)
        entity = {row["entity_id"]: row for row in snapshot.table("entities").to_pylist()}
        members: dict[str, list[str]] = defaultdict(list)
        for row in snapshot.table("clusters", ["cluster_id", "layer", "entity_id"]).to_pylist():
            if row["layer"] == 0:
                members[row["cluster_id"]].append(row["entity_id"])
        ids = sorted(members)
        for place in np.random.default_rng(seed).choice(len(ids), min(number, len(ids)), replace=False).tolist():
            lines = []
            for key in members[ids[place]]:
                text = entity[key]["description"][:SHOWN_CHARS].replace("\n", " ")
                of = ", ".join(str(numbers[document]) for document in sorted(documents[key])[:6])
                lines.append(f"- {entity[key]['name']} (documents {of}): {text}")
            drawn.append((index, sorted(lines)))
    order = np.random.default_rng(seed + 1).permutation(len(drawn)).tolist()
    for shown, place in enumerate(order):
        print(f"\n## {shown}\n" + "\n".join(drawn[place][1]))
    print(json.dumps({"benchmark": "layer_clusters", "whose": [drawn[place][0] for place in order]}))


if __name__ == "__main__":
    main()
