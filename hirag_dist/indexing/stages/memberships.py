"""Vectors of a layer, or memberships of its cells → clusters with their ids, and what prompts show of their members."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.clustering.partition_tree import ClusterSettings, largest_of_row
from hirag_dist.core.clustering.soft_clusters import responsibilities, soft_clusters
from hirag_dist.core.clustering.stop_rule import cluster_sparsity
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.text.ids import content_id
from hirag_dist.core.text.normalize import one_line, shorten
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByKey, Services, Split, Tables, Whole
from hirag_dist.indexing.stages.embed import vector_matrix
from hirag_dist.indexing.stages.reduce import full_rows, reduced
from hirag_dist.schemas import CLUSTERS, ENTITIES, VECTORS
from hirag_dist.types import IntVector

_STRINGS = pa.list_(pa.field("item", pa.string(), nullable=False))
CLUSTER_MEMBERS = pa.schema(
    [
        pa.field("cluster_id", pa.string(), nullable=False),
        pa.field("member_ids", _STRINGS, nullable=False),
        pa.field("names", _STRINGS, nullable=False),
        pa.field("types", _STRINGS, nullable=False),
        pa.field("descriptions", _STRINGS, nullable=False),
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
CELL_LINKS = pa.schema(  # memberships as the cells gave them
    [
        pa.field("cell", pa.int64(), nullable=False),
        pa.field("cluster", pa.int64(), nullable=False),  # within its cell
        pa.field("entity_id", pa.string(), nullable=False),
        pa.field("share", pa.float32(), nullable=False),  # of the cell's share of the entity
        pa.field("evidence", pa.float64(), nullable=False),  # for the cell: log of its rows times their density
    ]
)
KEPT_LINKS = pa.schema(
    [
        *(CELL_LINKS.field(name) for name in ("cell", "cluster", "entity_id")),
        pa.field("responsibility", pa.float32(), nullable=False),
        pa.field("best", pa.bool_(), nullable=False),
    ]
)
_NAMED = [CLUSTERS.field(name) for name in ("cluster_id", "entity_id", "responsibility", "best")]
NAMED_LINKS = pa.schema(_NAMED)
SHOWN_AS = pa.schema([ENTITIES.field(name) for name in ("entity_id", "name", "type", "description")])
MEMBER_ROWS = pa.schema([*_NAMED, *list(SHOWN_AS)[1:]])
CLUSTER_SIZES = pa.schema(  # of so many members there are so many clusters
    [pa.field("size", pa.int64(), nullable=False), pa.field("n_clusters", pa.int64(), nullable=False)]
)


@dataclass(frozen=True)
class ChooseMemberships:
    """Memberships of all cells → those that count: each entity's best one, and those of a posterior large enough."""

    name: ClassVar[str] = "choose_memberships"
    version: ClassVar[int] = 2

    class Inputs(TableSet):
        links: Annotated[Dataset, CELL_LINKS]

    class Outputs(TableSet):
        links: Annotated[Dataset, KEPT_LINKS]

    threshold: float
    rows_a_task: int

    @property
    def split(self) -> ByKey:
        """An entity's memberships meet."""
        return ByKey("entity_id", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the memberships that are kept; of equal ones that of the earlier cell and cluster is the best."""
        links = tables["links"].sort_by([("cell", "ascending"), ("cluster", "ascending")])
        entities = _numbered(links["entity_id"])
        cells, shares, evidence = (links[name].to_numpy() for name in ("cell", "share", "evidence"))
        posterior = responsibilities(entities, cells, shares, evidence)
        best = largest_of_row(entities, posterior)
        columns = [*(links[name] for name in ("cell", "cluster", "entity_id")), pa.array(posterior), pa.array(best)]
        kept = pa.table(columns, schema=KEPT_LINKS)
        return {"links": kept.filter(pa.array(best | (posterior >= np.float32(self.threshold))))}


@dataclass(frozen=True)
class DescribeMembers:
    """Memberships and entities → memberships with what a prompt shows of the member."""

    name: ClassVar[str] = "describe_members"
    version: ClassVar[int] = 1

    class Inputs(TableSet):
        links: Annotated[Dataset, NAMED_LINKS]
        entities: Annotated[Dataset, SHOWN_AS]

    class Outputs(TableSet):
        rows: Annotated[Dataset, MEMBER_ROWS]

    description_chars: int
    rows_a_task: int

    @property
    def split(self) -> ByKey:
        """An entity meets its memberships."""
        return ByKey("entity_id", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the memberships."""
        return {"rows": described(tables["links"], tables["entities"], self.description_chars)}


@dataclass(frozen=True)
class GroupMembers:
    """Memberships with what is shown of each → clusters."""

    name: ClassVar[str] = "group_members"
    version: ClassVar[int] = 1

    class Inputs(TableSet):
        rows: Annotated[Dataset, MEMBER_ROWS]

    class Outputs(TableSet):
        clusters: Annotated[Dataset, CLUSTERS]
        members: Annotated[Dataset, CLUSTER_MEMBERS]
        sizes: Annotated[Dataset, CLUSTER_SIZES]

    layer: int
    rows_a_task: int

    @property
    def split(self) -> ByKey:
        """A cluster's members meet."""
        return ByKey("cluster_id", self.rows_a_task)

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the clusters of this partition of ids, and how many there are of each size."""
        clusters, members = grouped(tables["rows"], self.layer)
        sizes, counts = np.unique(pc.list_value_length(members["member_ids"]).to_numpy(), return_counts=True)
        return {
            "clusters": clusters,
            "members": members,
            "sizes": pa.table([sizes.astype(np.int64), counts.astype(np.int64)], schema=CLUSTER_SIZES),
        }


def cluster_id(layer: int, members: list[str]) -> str:
    """Return a cluster's id: of its layer and its members' ids, sorted."""
    return content_id("cluster", str(layer), *members)


def described(links: pa.Table, entities: pa.Table, description_chars: int) -> pa.Table:
    """Return MEMBER_ROWS.

    Args:
        links: NAMED_LINKS.
        entities: SHOWN_AS, of the entities in them and perhaps of others.
    """
    wanted, which = np.unique(rows_of(links["entity_id"], entities["entity_id"]), return_inverse=True)
    shown = entities.take(wanted)
    texts = [shorten(one_line(text), description_chars) for text in shown["description"].to_pylist()]
    columns = [shown["name"], shown["type"], pa.chunked_array([pa.array(texts, pa.string())])]
    return pa.table([*links.columns, *(column.take(pa.array(which)) for column in columns)], schema=MEMBER_ROWS)


def grouped(rows: pa.Table, layer: int) -> tuple[pa.Table, pa.Table]:
    """Return CLUSTERS sorted by (cluster, entity), and CLUSTER_MEMBERS sorted alike, from MEMBER_ROWS.

    Where a cluster came from two cells its members are there twice, and have the larger of their shares.
    """
    rows = rows.sort_by(
        [("cluster_id", "ascending"), ("entity_id", "ascending"), ("responsibility", "descending")]
    ).combine_chunks()
    n_rows = rows.num_rows
    clusters, entities = _numbered(rows["cluster_id"]), _numbered(rows["entity_id"])
    first = _starts(clusters, entities)
    best = np.maximum.reduceat(rows["best"].to_numpy().astype(np.int8), first) if n_rows else np.zeros(0, np.int8)
    rows = rows.take(pa.array(first)).combine_chunks()
    flat = [
        rows["cluster_id"],
        pa.array(np.full(len(first), layer), pa.int32()),
        rows["entity_id"],
        rows["responsibility"],
        pa.array(best.astype(bool)),
    ]
    starts = _starts(clusters[first])
    offsets = pa.array(np.append(starts, len(first)), pa.int32())
    lists = [
        pa.ListArray.from_arrays(offsets, rows[name].combine_chunks(), type=_STRINGS)
        for name in ("entity_id", "name", "type", "description")
    ]
    members = pa.table([rows["cluster_id"].take(pa.array(starts)), *lists], schema=CLUSTER_MEMBERS)
    return pa.table(flat, schema=CLUSTERS), members


@dataclass(frozen=True)
class ClusterStats:
    """The one row of CLUSTER_STATS: figures of a layer's clusters.

    Attributes:
        sparsity: CS, Eq. 17.
        n_components: of the mixtures, before oversized clusters were split.
    """

    n_clusters: int
    median_cluster: float
    largest_cluster: int
    sparsity: float
    n_components: int


def cluster_stats(sizes: IntVector, n_entities: int, n_components: int) -> ClusterStats:
    """Return the figures of a layer that the stop rule uses, of (n_clusters,) sizes."""
    return ClusterStats(
        n_clusters=len(sizes),
        median_cluster=float(np.median(sizes)),
        largest_cluster=int(sizes.max()),
        sparsity=cluster_sparsity(sizes, n_entities),
        n_components=n_components,
    )


def _numbered(strings: pa.ChunkedArray) -> IntVector:
    """Return (n,) a number for each distinct string."""
    encoded = strings.combine_chunks().dictionary_encode()
    numbers: IntVector = encoded.indices.to_numpy().astype(np.int64)
    return numbers


def _starts(*keys: IntVector) -> IntVector:
    """Return where runs of equal keys begin."""
    n_rows = len(keys[0])
    new = np.ones(n_rows, bool)
    if n_rows:
        new[1:] = np.any([key[1:] != key[:-1] for key in keys], axis=0)
    return np.flatnonzero(new)


@dataclass(frozen=True)
class ClusterLayer:
    """Vectors of one layer → clusters (Eq. 8) with their sparsity (Eq. 17).

    A larger layer is clustered by several stages (`layer_clusters`), which give the same clusters.
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
