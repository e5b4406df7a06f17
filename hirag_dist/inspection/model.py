"""Figures of an index: a tree of small frozen records that goes to JSON as it is.

Measures of graphs are plain functions on numpy arrays; a node is a row number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart
from hirag_dist.core.drift import DriftReport, UpdateStaleness, update_dict
from hirag_dist.core.graph.csr import heads
from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.types import CsrGraph, IntVector


@dataclass(frozen=True, slots=True)
class LayerSummary:
    """One layer of the hierarchy.

    Attributes:
        sparsity: CS (Eq. 17); None where the layer was not clustered.
        attached: members that the model left out of its summary, attached afterwards.
        unattached: members of clusters whose summary is a dead letter.
        covered: share of the entities with a relation to a summary of the layer above; None for the highest layer.
    """

    layer: int
    entities: int
    clusters: int
    median_cluster: float
    largest_cluster: int
    sparsity: float | None
    change_rate: float | None
    summaries: int
    attached: int
    unattached: int
    covered: float | None
    decision: str


@dataclass(frozen=True, slots=True)
class TypeCount:
    """Entities of one type, in all layers."""

    type: str
    entities: int


@dataclass(frozen=True, slots=True)
class HubEntity:
    """An entity with many neighbours."""

    entity_id: str
    name: str
    type: str
    layer: int
    degree: int


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One graph: parallel relations joined, relations from an entity to itself left out.

    Attributes:
        edges: pairs of entities with at least one relation.
        components: connected components, isolated entities among them.
        largest_share: share of the entities that the largest component holds.
        clustering: Eq. 18 and the mean local coefficient.
    """

    entities: int
    edges: int
    mean_degree: float
    components: int
    largest_share: float
    isolated: int
    clustering: ClusteringCoefficients


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """The communities of one level.

    Attributes:
        sizes: smallest, quarter, median, three quarters and largest number of entities.
        reports: communities of the level that have a report.
        entities_covered: share of all entities that are in a community of this level with a report.
    """

    level: int
    communities: int
    leaves: int
    sizes: tuple[float, float, float, float, float]
    reports: int
    entities_covered: float


@dataclass(frozen=True, slots=True)
class ReportCover:
    """Coverage of the reports, over all levels.

    Attributes:
        from_model: reports that a model wrote, the built-in one too.
        missing: communities that take a call and whose reports `communities.report_share` leaves out.
    """

    communities: int
    reports: int
    from_model: int
    communities_share: float
    entities_share: float
    missing: int = 0


@dataclass(frozen=True, slots=True)
class BillLine:
    """Model usage of one stage, or of the whole build."""

    stage: str
    calls: int
    ledger_hits: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_usd: float | None
    rejected: int
    rate_limited: int
    failed: int
    models: tuple[str, ...]
    endpoints: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResolvedName:
    """A name that is another name's entity, and why. `score` is 0 to 1."""

    name: str
    canonical_name: str
    score: float
    evidence: str


@dataclass(frozen=True, slots=True)
class TierSummary:
    """Names that one tier of entity resolution made another name's entity, with examples."""

    tier: str
    names: int
    examples: tuple[ResolvedName, ...]


@dataclass(frozen=True, slots=True)
class Inspection:
    """Figures of an index.

    Attributes:
        counts: rows of each table, distinct relations by kind as `relations.KIND`, members of clusters.
        base_graph: the entities of layer 0 and the relations among them.
        graph: all layers and all relations.
        paths: hops between entities that share no chunk, in both graphs.
        resolved: by tier of entity resolution, the surest first; empty where it is off or found nothing.
        bill: a line a stage, in the order of the table; `total` adds them up.
        update: that made the index, and the texts that are due; None without update state.
        drift: against a shadow clustering; None where it was not measured.
    """

    snapshot_id: str
    created_at: str
    complete: bool | None
    counts: Mapping[str, int]
    layers: tuple[LayerSummary, ...]
    entity_types: tuple[TypeCount, ...]
    hubs: tuple[HubEntity, ...]
    base_graph: GraphSummary
    graph: GraphSummary
    paths: PathLengthSample
    levels: tuple[LevelSummary, ...]
    reports: ReportCover
    resolved: tuple[TierSummary, ...]
    bill: tuple[BillLine, ...]
    total: BillLine
    update: UpdateStaleness | None = None
    drift: DriftReport | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the tree as dictionaries, lists, strings and numbers: what JSON can hold."""
        found = asdict(replace(self, update=None, drift=None))
        if self.update is not None:
            found["update"] = update_dict(self.update)
        if self.drift is not None:
            found["drift"] = self.drift.to_dict()
        return _plain(found)  # type: ignore[no-any-return]


def _plain(value: Any) -> Any:
    """The value with tuples as lists, so that what is written to JSON and read back is equal."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class ClusteringCoefficients:
    """Clustering coefficients: the share of pairs of neighbours that are neighbours of each other.

    Attributes:
        transitivity: closed triples over all triples, Eq. 18 of the HiRAG paper; 0.0 where there is no triple.
        average_local: mean over all nodes of the share of closed triples around each; below two neighbours it is 0.
    """

    transitivity: float
    average_local: float


def triangles_per_node(graph: CsrGraph) -> IntVector:
    """Return (n_nodes,) the number of triangles that each node is part of.

    Edges point from the lower to the higher degree, so that a hub with many neighbours costs no more than the square
    root of the number of edges.
    """
    order = np.argsort(np.diff(graph.indptr), kind="stable")
    rank = np.empty(graph.n_nodes, np.int64)
    rank[order] = np.arange(graph.n_nodes)
    rows, columns = rank[heads(graph)], rank[graph.indices]
    rows, columns = rows[rows < columns], columns[rows < columns]
    indptr = np.zeros(graph.n_nodes + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=graph.n_nodes), out=indptr[1:])
    result: IntVector = _triangles(indptr, columns[np.argsort(rows, kind="stable")])[rank]
    return result


@compiled_apart
def _triangles(indptr: NDArray[np.int64], indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the triangles of each node of a graph whose edges point from the lower to the higher number."""
    n_nodes = len(indptr) - 1
    counts = np.zeros(n_nodes, np.int64)
    seen_from = np.full(n_nodes, -1, np.int64)  # the last node that the node is a neighbour of
    for low in range(n_nodes):
        for edge in range(indptr[low], indptr[low + 1]):
            seen_from[indices[edge]] = low
        for edge in range(indptr[low], indptr[low + 1]):
            middle = indices[edge]
            for other in range(indptr[middle], indptr[middle + 1]):
                high = indices[other]
                if seen_from[high] == low:
                    counts[low] += 1
                    counts[middle] += 1
                    counts[high] += 1
    return counts


def clustering(graph: CsrGraph) -> ClusteringCoefficients:
    """Return the clustering coefficients of a graph without loops or parallel edges.

    Paper: Eq. 18 (the global coefficient, closed triples over all triples), and the mean of the local ones.
    """
    degrees = np.diff(graph.indptr)
    triples = degrees * (degrees - 1) // 2
    n_triples = int(triples.sum())
    if not n_triples:
        return ClusteringCoefficients(0.0, 0.0)
    triangles = triangles_per_node(graph)
    local = np.divide(triangles, triples, out=np.zeros(graph.n_nodes), where=triples > 0)
    # a triangle is three closed triples, one around each corner
    return ClusteringCoefficients(int(triangles.sum()) / n_triples, float(local.mean()))
