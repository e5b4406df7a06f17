"""A drift report: figures of an index and of a shadow clustering, and the gates that they are held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from hirag_dist.core.drift.measures import StaleTexts

MIN_COMPACTNESS_RATIO = 0.95
MAX_MODULARITY_GAP = 0.01
MAX_STALE_SHARE = 0.1
MIN_SIZE = 2  # members of a cluster or community that groups anything

_FORMS = {"ratio": ".3f", "share": ".1%", "number": ",.0f"}
_REBUILD = "`hirag-dist index INPUT --rebuild` clusters all layers again; replies that are found are not paid again"
_REFRESH = "`hirag-dist refresh` writes what is due again"


@dataclass(frozen=True, slots=True)
class GroupSizes:
    """Number of groups by size.

    Attributes:
        groups: clusters or communities.
        small: groups with fewer than `MIN_SIZE` members.
        large: groups with more members than the configured maximum.
    """

    groups: int
    small: int
    large: int


@dataclass(frozen=True, slots=True)
class PartitionDrift:
    """Groups of the index compared with those of the shadow.

    Attributes:
        sizes, shadow_sizes: of the groups in the index and in the shadow.
        jaccard: best Jaccard index of each group of the index with one of the shadow, weighted by size.
        ari: adjusted Rand index, over the best group of each entity.
    """

    sizes: GroupSizes
    shadow_sizes: GroupSizes
    jaccard: float
    ari: float


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """Clusters of one layer compared with those of the shadow.

    Attributes:
        entities: of the layer.
        orphans: entities in no cluster.
        compactness, shadow_compactness: mean cosine of entities to the centroid of their best cluster.
    """

    layer: int
    entities: int
    orphans: int
    clusters: PartitionDrift
    compactness: float
    shadow_compactness: float

    @property
    def compactness_ratio(self) -> float:
        """Compactness relative to the shadow's; 1.0 where the shadow has none."""
        return self.compactness / self.shadow_compactness if self.shadow_compactness else 1.0


@dataclass(frozen=True, slots=True)
class CommunityDrift:
    """Communities compared with those of the shadow.

    Attributes:
        orphans: entities in no community of level 0.
        top: level 0.
        leaves: communities that are not split further.
        modularity, shadow_modularity: of level 0, with the configured resolution.
    """

    entities: int
    orphans: int
    top: PartitionDrift
    leaves: PartitionDrift
    modularity: float
    shadow_modularity: float

    @property
    def modularity_gap(self) -> float:
        """Modularity below the shadow's, as a share of the shadow's; negative where the index has more."""
        missing = self.shadow_modularity - self.modularity
        return missing / self.shadow_modularity if self.shadow_modularity > 0 else max(missing, 0.0)


@dataclass(frozen=True, slots=True)
class UpdateStaleness:
    """Update that made the index, and texts that are due.

    Attributes:
        number: of updates since the index was built from nothing.
        base: snapshot that was updated; None for a build from nothing.
        documents: number of documents added, changed and removed.
        debt: kind of text → units and tokens that were due and not written in this update.
        summaries, reports: staleness by the tables of the snapshot.
        other_changes: what differed where no document was added, changed or removed.
    """

    number: int
    base: str | None
    documents: Mapping[str, int]
    debt: Mapping[str, Mapping[str, int]]
    summaries: StaleTexts
    reports: StaleTexts
    other_changes: tuple[str, ...] = ()

    @property
    def stale_share(self) -> float:
        """Share of the tokens of all summaries and reports that is due."""
        tokens = self.summaries.tokens + self.reports.tokens
        return (self.summaries.due_tokens + self.reports.due_tokens) / tokens if tokens else 0.0


@dataclass(frozen=True, slots=True)
class Gate:
    """One limit that the index is held to.

    Attributes:
        name: of the figure.
        part: layer or communities that the figure is of; empty for the whole index.
        unit: a ratio has a lower limit, a share or number an upper one.
        value: of the index.
        limit: the smallest or largest value that holds.
        remedy: what to do where the gate fails.
    """

    name: str
    part: str
    unit: Literal["ratio", "share", "number"]
    value: float
    limit: float
    remedy: str

    @property
    def holds(self) -> bool:
        """True where the value is within the limit."""
        return self.value >= self.limit if self.unit == "ratio" else self.value <= self.limit

    @property
    def advice(self) -> str:
        """The remedy; empty where the gate holds."""
        return "" if self.holds else self.remedy

    @property
    def value_text(self) -> str:
        """The value for a person."""
        return format(self.value, _FORMS[self.unit])

    @property
    def limit_text(self) -> str:
        """The limit for a person, with its sign."""
        return f"{'≥' if self.unit == 'ratio' else '≤'} {format(self.limit, _FORMS[self.unit])}"

    def to_dict(self) -> dict[str, Any]:
        """Return the gate for JSON."""
        shown = {name: getattr(self, name) for name in ("name", "part", "unit", "value", "limit")}
        return shown | {"holds": self.holds, "advice": self.advice}


@dataclass(frozen=True, slots=True)
class DriftReport:
    """Drift of one snapshot.

    Attributes:
        kernels: that computed the shadow.
        index_kernels: that the index was built with; others may find other clusters.
        layers: the clustered ones, from the lowest up.
        communities: None where there are none, or where they were imported and are kept as they are.
        update: None for a snapshot without update state.
        notes: what limits the comparison, in sentences.
    """

    snapshot_id: str
    kernels: str
    index_kernels: str
    layers: tuple[LayerDrift, ...]
    communities: CommunityDrift | None
    update: UpdateStaleness | None
    notes: tuple[str, ...] = ()

    @property
    def gates(self) -> tuple[Gate, ...]:
        """Gates in the order of the report."""
        return tuple(_gates(self))

    @property
    def holds(self) -> bool:
        """True where all gates hold."""
        return all(gate.holds for gate in self.gates)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries, lists, strings and numbers, with ratios and gates."""
        found = asdict(self) | {"notes": list(self.notes)}
        found["layers"] = [asdict(layer) | {"compactness_ratio": layer.compactness_ratio} for layer in self.layers]
        if self.communities is not None:
            found["communities"]["modularity_gap"] = self.communities.modularity_gap
        if self.update is not None:
            found["update"] = update_dict(self.update)
        return found | {"gates": [gate.to_dict() for gate in self.gates], "holds": self.holds}


def update_dict(state: UpdateStaleness) -> dict[str, Any]:
    """Return the state of an update with its shares, for JSON."""
    found = asdict(state)
    for kind, texts in (("summaries", state.summaries), ("reports", state.reports)):
        found[kind] |= {"due_share": texts.due_share, "changed_share": texts.changed_share}
    return found | {"stale_share": state.stale_share}


def _gates(report: DriftReport) -> Iterator[Gate]:
    for layer in report.layers:
        part, clusters = f"layer {layer.layer}", layer.clusters
        yield Gate("compactness ratio", part, "ratio", layer.compactness_ratio, MIN_COMPACTNESS_RATIO, _REBUILD)
        yield Gate("orphans", part, "number", layer.orphans, 0, _REBUILD)
        yield Gate("oversized clusters", part, "number", clusters.sizes.large, clusters.shadow_sizes.large, _REBUILD)
    if report.communities is not None:
        part, gap = "communities", report.communities.modularity_gap
        yield Gate("modularity gap", part, "share", gap, MAX_MODULARITY_GAP, _REBUILD)
        yield Gate("orphans", part, "number", report.communities.orphans, 0, _REBUILD)
    if report.update is not None:
        yield Gate("stale share", "", "share", report.update.stale_share, MAX_STALE_SHARE, _REFRESH)
