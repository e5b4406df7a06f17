"""Figures of an index: a tree of small frozen records that goes to JSON as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from hirag_dist.core.drift.report import DriftReport, UpdateStaleness, update_dict
from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.inspection.measures import ClusteringCoefficients


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
class DegreeBin:
    """Entities whose degree is at least `low` and at most `high`."""

    low: int
    high: int
    entities: int


@dataclass(frozen=True, slots=True)
class GraphSummary:
    """One graph: parallel relations joined, relations from an entity to itself left out.

    Attributes:
        edges: pairs of entities with at least one relation.
        components: connected components, isolated entities among them.
        largest_share: share of the entities that the largest component holds.
        isolated: entities without a neighbour.
        degrees: logarithmic bins; the first is degree 0.
        clustering: Eq. 18 and the mean local coefficient.
    """

    entities: int
    edges: int
    mean_degree: float
    components: int
    largest_share: float
    isolated: int
    degrees: tuple[DegreeBin, ...]
    clustering: ClusteringCoefficients


@dataclass(frozen=True, slots=True)
class LargeCommunity:
    """A community with the title of its report, empty where it has none."""

    community_id: str
    title: str
    entities: int
    relations: int
    rating: float | None


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
    largest: tuple[LargeCommunity, ...]


@dataclass(frozen=True, slots=True)
class ReportCover:
    """Coverage of the reports, over all levels.

    Attributes:
        from_model: reports that a model wrote.
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
