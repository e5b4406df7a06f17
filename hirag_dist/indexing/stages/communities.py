"""All layers → the graph, its communities, and the outline of what each community's report shows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import community_table, renamed_reports, warm_start, with_summaries
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import Services, Split, Tables, Whole
from hirag_dist.schemas import COMMUNITIES, ENTITIES, RELATIONS, REPORTS
from hirag_dist.types import CsrGraph, WarmStart

ENTITY_ORDER = pa.schema([ENTITIES.field(name) for name in ("entity_id", "layer")])
RELATION_KINDS = pa.schema([RELATIONS.field(name) for name in ("source_id", "target_id", "kind")])
ADJACENCY = pa.schema(  # the entries of a graph's rows, in order
    [pa.field("neighbour", pa.int32(), nullable=False), pa.field("weight", pa.float32(), nullable=False)]
)
DEGREES = pa.schema([pa.field("degree", pa.int64(), nullable=False)])  # entries of each row
CHANGED_ENTITIES = pa.schema([ENTITIES.field("entity_id")])
DETECTION_STATS = pa.schema(
    [
        pa.field("modularity_warm", pa.float64()),  # of level 0; null without earlier communities
        pa.field("modularity_cold", pa.float64()),  # null if no cold detection was made
        pa.field("cold_adopted", pa.bool_(), nullable=False),
        pa.field("n_kept", pa.int64(), nullable=False),  # communities with the id of an earlier one
        pa.field("n_new", pa.int64(), nullable=False),
        pa.field("changed_since_cold", pa.int64(), nullable=False),  # entities, since the last cold detection
    ]
)
Levels = list[NDArray[np.int64]]
_MAX_CHECKED_NODES = 200_000  # of a graph that every update also partitions without earlier communities
_MAX_UNCHECKED_SHARE = 0.01  # of the entities that may change before a larger graph is checked
_MAX_LOSS = 0.01  # of the modularity of the cold detection, else its communities are adopted
_LIMIT = "one process, ids and numbers only: about 1 million entities and 5 million relations in 2 GB"


@dataclass(frozen=True)
class DetectCommunities:
    """Entities and relations of all layers → hierarchical Leiden communities. Paper: §4.1, end.

    With the communities of the index before, detection starts from those (a warm start) and they keep their ids. A
    detection without them (a cold one) checks the result where it is cheap or where much has changed.

    Attributes:
        changed_before: entities that earlier updates changed since the last cold detection.
    """

    name: ClassVar[str] = "communities"
    version: ClassVar[int] = 4
    split: ClassVar[Split] = Whole(_LIMIT)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITY_ORDER]
        adjacency: Annotated[Dataset, ADJACENCY]  # of entities in their order
        degrees: Annotated[Dataset, DEGREES]
        previous: Annotated[Dataset | None, COMMUNITIES] = None
        changed: Annotated[Dataset | None, CHANGED_ENTITIES] = None  # None with `previous`: all count as changed

    class Outputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        stats: Annotated[Dataset, DETECTION_STATS]

    max_size: int
    resolution: float
    seed: int
    kernels: str
    changed_before: int = 0

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the communities; an entity without relations is one by itself."""
        ids, graph = _graph(tables)
        previous = tables.get("previous")
        start = None
        if previous is not None:
            start = warm_start(previous, tables["changed"]["entity_id"] if "changed" in tables else None, ids)
        n_changed = self.changed_before + int(start.changed.sum()) if start else 0
        warm_levels, cold_levels = self._levels(graph, ids, start, n_changed, services)
        warm, cold = (
            modularity(graph, levels[0], self.resolution) if levels else None for levels in (warm_levels, cold_levels)
        )
        adopted = warm is None or (cold is not None and warm < cold - _MAX_LOSS * abs(cold))
        communities = community_table(cold_levels if adopted else warm_levels, graph, ids, previous)
        n_kept = 0
        if previous is not None:
            earlier = previous["community_id"].combine_chunks()
            n_kept = int(pc.sum(pc.is_in(communities["community_id"], value_set=earlier)).as_py() or 0)
        stats = {
            "modularity_warm": warm,
            "modularity_cold": cold,
            "cold_adopted": adopted,
            "n_kept": n_kept,
            "n_new": communities.num_rows - n_kept,
            "changed_since_cold": 0 if cold_levels else n_changed,
        }
        return {"communities": communities, "stats": pa.Table.from_pylist([stats], DETECTION_STATS)}

    def _levels(
        self, graph: CsrGraph, ids: pa.ChunkedArray, start: WarmStart | None, n_changed: int, services: Services
    ) -> tuple[Levels, Levels]:
        """Return the labels of a warm start, and those of a cold one; empty lists where none was made."""
        if not graph.n_nodes:
            return [], []
        keys = visiting_keys(ids, self.seed)
        detect = partial(services.kernels(self.kernels).leiden, graph, self.max_size, self.resolution, keys)
        if start is None:
            return [], detect()
        checked = graph.n_nodes <= _MAX_CHECKED_NODES or n_changed > _MAX_UNCHECKED_SHARE * graph.n_nodes
        return detect(start), detect() if checked else []


@dataclass(frozen=True)
class KeepCommunities:
    """Communities and reports that were imported → the same, with the summary entities above their members."""

    name: ClassVar[str] = "keep_communities"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = Whole(_LIMIT)

    class Inputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        reports: Annotated[Dataset, REPORTS]
        entities: Annotated[Dataset, ENTITY_ORDER]
        relations: Annotated[Dataset, RELATION_KINDS]

    class Outputs(TableSet):
        communities: Annotated[Dataset, COMMUNITIES]
        reports: Annotated[Dataset, REPORTS]

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return them under ids that hash all their members."""
        communities, ids = with_summaries(tables["communities"], tables["entities"], tables["relations"])
        return {"communities": communities, "reports": renamed_reports(tables["reports"], ids)}


def adjacency(graph: CsrGraph) -> tuple[pa.Table, pa.Table]:
    """Return ADJACENCY and DEGREES of a graph."""
    return (
        pa.table([graph.indices, graph.weights], schema=ADJACENCY),
        pa.table([np.diff(graph.indptr)], schema=DEGREES),
    )


def _graph(tables: Tables) -> tuple[pa.ChunkedArray, CsrGraph]:
    """Return the ids of entities in the order of a snapshot's rows, and their graph."""
    entries = tables["adjacency"]
    indptr = np.concatenate([[0], np.cumsum(tables["degrees"]["degree"].to_numpy())]).astype(np.int64)
    neighbours, weights = entries["neighbour"].to_numpy(), entries["weight"].to_numpy()
    graph = CsrGraph(indptr, neighbours, weights, np.zeros(len(neighbours), np.int32))
    return tables["entities"]["entity_id"], graph
