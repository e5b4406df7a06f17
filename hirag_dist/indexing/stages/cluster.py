"""A layer's vectors → overlapping clusters, and the members each prompt will show, in one process."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import soft_clusters
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import Services, Split, Tables, Whole
from hirag_dist.indexing.stages.embed import vector_matrix
from hirag_dist.indexing.stages.memberships import (
    CLUSTER_MEMBERS,
    CLUSTER_STATS,
    NAMED_LINKS,
    SHOWN_AS,
    cluster_id,
    cluster_stats,
    described,
    grouped,
)
from hirag_dist.indexing.stages.reduce import full_rows, reduced
from hirag_dist.schemas import CLUSTERS, VECTORS


@dataclass(frozen=True)
class ClusterLayer:
    """Vectors of one layer → clusters (Eq. 8) with their sparsity (Eq. 17).

    A larger layer is clustered by several stages (`layering`), which give the same clusters.
    """

    name: ClassVar[str] = "cluster"
    version: ClassVar[int] = 7
    split: ClassVar[Split] = Whole("one shard, 65,536 entities: larger layers are clustered by stages of many tasks")

    class Inputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]
        entities: Annotated[Dataset, SHOWN_AS]

    class Outputs(TableSet):
        clusters: Annotated[Dataset, CLUSTERS]
        members: Annotated[Dataset, CLUSTER_MEMBERS]
        stats: Annotated[Dataset, CLUSTER_STATS]

    layer: int
    dim: int
    reduce_dims: int
    settings: ClusterSettings
    description_chars: int
    kernels: str

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return memberships, prompt material by cluster, and one row of figures."""
        order = tables["vectors"]["id"]
        vectors = vector_matrix(tables["vectors"], self.dim)
        kernels = services.kernels(self.kernels)
        scores = reduced(vectors, self.reduce_dims, full_rows(self.settings.shard_rows), kernels)
        soft = soft_clusters(scores, self.settings, kernels)
        ids = np.array(order.to_pylist(), object)
        bounds = np.concatenate([[0], np.cumsum(soft.sizes)])
        cluster_ids = [cluster_id(self.layer, sorted(ids[soft.rows[first:last]])) for first, last in pairwise(bounds)]
        links = [
            pa.array(np.array(cluster_ids, object)[soft.clusters], pa.string()),
            order.take(pa.array(soft.rows)),
            pa.array(soft.responsibilities, pa.float32()),
            pa.array(soft.best),
        ]
        rows = described(pa.table(links, schema=NAMED_LINKS), tables["entities"], self.description_chars)
        clusters, members = grouped(rows, self.layer)
        stats = cluster_stats(soft.sizes, len(vectors), soft.n_components)
        return {"clusters": clusters, "members": members, "stats": pa.Table.from_pylist([asdict(stats)], CLUSTER_STATS)}
