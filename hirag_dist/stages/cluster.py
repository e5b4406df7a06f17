"""A layer's vectors → overlapping clusters, and the members each prompt will show."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.cells import ClusterSettings
from hirag_dist.core.clustering import soft_clusters
from hirag_dist.core.graph import rows_of
from hirag_dist.core.ids import content_id
from hirag_dist.core.sparsity import cluster_sparsity
from hirag_dist.core.text import one_line, shorten
from hirag_dist.schemas import CLUSTERS, ENTITIES, VECTORS
from hirag_dist.stages.base import Schemas, Services, Split, Tables, Whole
from hirag_dist.stages.embed import vector_matrix
from hirag_dist.types import Covariance

CLUSTER_MEMBERS = pa.schema(
    [
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("member_ids", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        pa.field("names", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        pa.field("types", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
        pa.field("descriptions", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False),
    ]
)

CLUSTER_STATS = pa.schema(
    [
        pa.field("n_clusters", pa.int64(), nullable=False),
        pa.field("median_cluster", pa.float64(), nullable=False),
        pa.field("largest_cluster", pa.int64(), nullable=False),
        pa.field("sparsity", pa.float64(), nullable=False),
        pa.field("n_components", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True)
class ClusterLayer:
    """Vectors of one layer → clusters (Eq. 8) with their sparsity (Eq. 17)."""

    name: ClassVar[str] = "cluster"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = Whole("one process: some 500 entities a second, and the vectors of the layer in memory")
    reads: ClassVar[Schemas] = {"vectors": VECTORS, "entities": ENTITIES}
    writes: ClassVar[Schemas] = {"clusters": CLUSTERS, "members": CLUSTER_MEMBERS, "stats": CLUSTER_STATS}

    layer: int
    dim: int
    reduce_dims: int
    covariance: Covariance
    target_size: int
    max_size: int
    threshold: float
    description_chars: int
    seed: int
    kernels: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return memberships, prompt material by cluster, and one row of figures."""
        order = tables["vectors"]["id"]
        vectors = vector_matrix(tables["vectors"], self.dim)
        n_rows = len(vectors)
        reduced = services.kernels.pca(vectors, min(self.reduce_dims, self.dim, max(n_rows - 1, 1)), self.seed)
        settings = ClusterSettings(self.target_size, self.max_size, self.threshold, self.seed, self.covariance)
        soft = soft_clusters(reduced, settings, services.kernels)
        ids = np.array(order.to_pylist(), object)
        bounds = np.concatenate([[0], np.cumsum(soft.sizes)])
        cluster_ids = [
            content_id("cluster", str(self.layer), *sorted(ids[soft.rows[first:last]]))
            for first, last in pairwise(bounds)
        ]
        clusters = pa.table(
            {
                "cluster_id": pa.array(np.array(cluster_ids, object)[soft.clusters], pa.string()),
                "layer": pa.array(np.full(len(soft.rows), self.layer), pa.int32()),
                "entity_id": pa.array(ids[soft.rows], pa.string()),
                "responsibility": pa.array(soft.responsibilities, pa.float32()),
                "best": pa.array(soft.best),
            },
            schema=CLUSTERS,
        ).sort_by([("cluster_id", "ascending"), ("entity_id", "ascending")])
        entities = tables["entities"]
        where = rows_of(order, entities["entity_id"])
        columns = [entities[name].to_pylist() for name in ("name", "type", "description")]
        members = []
        for number, (first, last) in enumerate(pairwise(bounds)):
            rows = sorted(soft.rows[first:last].tolist(), key=lambda row: ids[row])
            members.append(
                {
                    "cluster_id": cluster_ids[number],
                    "member_ids": [ids[row] for row in rows],
                    "names": [columns[0][where[row]] for row in rows],
                    "types": [columns[1][where[row]] for row in rows],
                    "descriptions": [shorten(one_line(columns[2][where[row]]), self.description_chars) for row in rows],
                }
            )
        stats = {
            "n_clusters": len(soft.sizes),
            "median_cluster": float(np.median(soft.sizes)),
            "largest_cluster": int(soft.sizes.max()),
            "sparsity": cluster_sparsity(soft.sizes, n_rows),
            "n_components": soft.n_components,
        }
        return {
            "clusters": clusters,
            "members": pa.Table.from_pylist(members, CLUSTER_MEMBERS).sort_by("cluster_id"),
            "stats": pa.Table.from_pylist([stats], CLUSTER_STATS),
        }
