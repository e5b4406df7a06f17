"""Drift: compactness of clusters, agreement of partitions, staleness of texts, and the gates that they are held to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.groupby import shared_counts
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

_BLOCK_ROWS = 8192  # vectors in memory at a time, apart from a larger cluster


def compactness(vectors: FloatMatrix, labels: IntVector) -> float:
    """Return the mean cosine of rows to their cluster's centroid, over all rows that are in a cluster.

    The centroid of a cluster is the mean of its vectors. For vectors of unit length the cosines of a cluster's members
    add up to the length of the sum of its vectors, so one pass is enough. Equal partitions give equal bits, whatever
    their labels are.

    Args:
        vectors: (n, dim) float32, of unit length or all zero (such a row counts as cosine 0); may be memory-mapped.
        labels: (n,) cluster of each row, −1 for none.

    Returns:
        From 0 to 1; 1.0 where no row is in a cluster.
    """
    rows = np.flatnonzero(labels >= 0)
    if not len(rows):
        return 1.0
    rows = rows[np.argsort(labels[rows], kind="stable")]
    starts = np.flatnonzero(np.diff(labels[rows], prepend=-1))
    ends = np.append(starts[1:], len(rows))
    lengths: list[float] = []
    first = 0
    while first < len(starts):
        last = max(int(np.searchsorted(ends, starts[first] + _BLOCK_ROWS, side="right")), first + 1)
        block = vectors[rows[starts[first] : ends[last - 1]]].astype(np.float64)
        sums = np.add.reduceat(block, starts[first:last] - starts[first], axis=0)
        lengths.extend(np.sqrt(np.einsum("ij,ij->i", sums, sums)).tolist())
        first = last
    return math.fsum(lengths) / len(rows)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups of rows, which may overlap.

    Attributes:
        numbers: (n_entries,) group of each membership, from 0 on.
        rows: (n_entries,) member row, once in a group.
    """

    numbers: IntVector
    rows: IntVector

    @property
    def sizes(self) -> IntVector:
        """(n_groups,) members of each."""
        return np.bincount(self.numbers)


def groups_of_labels(labels: IntVector) -> Groups:
    """Return the groups of a partition; rows labelled −1 are in no group."""
    rows = np.flatnonzero(labels >= 0)
    return Groups(labels[rows], rows)


def best_jaccard(groups: Groups, others: Groups) -> FloatVector:
    """Return for each group the Jaccard index of its members with those of the most similar other group.

    Memory is bounded by the pairs of groups that share a row, and by the memberships in the other groups of one group's
    rows.

    Returns:
        (n_groups,) from 0 to 1; 0 where no other group shares a member.
    """
    own, other, shared = shared_counts(groups.numbers, groups.rows, others.numbers, others.rows)
    sizes = groups.sizes
    best = np.zeros(len(sizes))
    np.maximum.at(best, own, shared / (sizes[own] + others.sizes[other] - shared))
    return best


def weighted_jaccard(groups: Groups, others: Groups) -> float:
    """Return the mean of `best_jaccard` weighted by the groups' sizes; 1.0 where there are no groups on either side."""
    if not len(groups.rows):
        return 0.0 if len(others.rows) else 1.0
    return float(np.average(best_jaccard(groups, others), weights=groups.sizes))


_CHARS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class StaleTexts:
    """Texts of one kind, and how many of them are due to be written again.

    Attributes:
        units: summaries or reports that a model or the rules wrote.
        due: units that are due: their material has changed too much, or they are stand-ins.
        tokens: Tokens of all units, at four characters a token.
        changed_tokens: tokens of each unit times the share of its material that has changed, added up.
    """

    units: int
    due: int
    tokens: int
    due_tokens: int
    changed_tokens: int

    @property
    def due_share(self) -> float:
        """Share of the tokens that is due; 0.0 without any text."""
        return self.due_tokens / self.tokens if self.tokens else 0.0

    @property
    def changed_share(self) -> float:
        """Mean share of the material that has changed, weighted by tokens; 0.0 without any text."""
        return self.changed_tokens / self.tokens if self.tokens else 0.0


def stale_summaries(summaries: pa.Table) -> StaleTexts:
    """Return the staleness of SUMMARIES; `entities`, `covers`, `stale_share` and `stale_since` are read."""
    chars = _chars_of_items(summaries["entities"], ("name", "type", "description"))
    return _stale(chars + _chars_of_items(summaries["covers"], ("description",)), summaries)


def stale_reports(report_inputs: pa.Table, reports: pa.Table) -> StaleTexts:
    """Return the staleness of the reports in REPORT_INPUTS.

    Args:
        report_inputs: `community_id`, `stale_share` and `stale_since` are read.
        reports: REPORTS, with their texts; a report that is missing counts no token.
    """
    chars = _chars_of_items(reports["findings"], ("summary", "explanation"))
    for name in ("title", "summary", "rating_explanation"):
        chars += _lengths(reports[name].combine_chunks())
    rows = rows_of(report_inputs["community_id"], reports["community_id"])
    return _stale(np.where(rows >= 0, np.append(chars, 0)[rows], 0), report_inputs)


def _stale(chars: IntVector, written: pa.Table) -> StaleTexts:
    tokens = -(-chars // _CHARS_PER_TOKEN)
    due = written["stale_since"].to_numpy() > 0
    changed = tokens * written["stale_share"].to_numpy().astype(np.float64)
    return StaleTexts(len(due), int(due.sum()), int(tokens.sum()), int(tokens[due].sum()), round(float(changed.sum())))


def _chars_of_items(column: pa.ChunkedArray, names: tuple[str, ...]) -> IntVector:
    """Return (n_rows,) the characters of some fields of the structs in each row's list."""
    totals = [np.zeros(0, np.int64)]
    for chunk in column.chunks:
        sizes = chunk.value_lengths().to_numpy(zero_copy_only=False)
        items = chunk.flatten()
        chars = sum((_lengths(items.field(name)) for name in names), np.zeros(len(items), np.int64))
        until = np.concatenate([[0], np.cumsum(chars)])
        ends = np.cumsum(sizes)
        totals.append(until[ends] - until[ends - sizes])
    return np.concatenate(totals).astype(np.int64)


def _lengths(texts: pa.Array) -> IntVector:
    found: IntVector = pc.utf8_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


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
        jaccard: best Jaccard index of each group of the index with one of the shadow, weighted by size.
    """

    sizes: GroupSizes
    shadow_sizes: GroupSizes
    jaccard: float


@dataclass(frozen=True, slots=True)
class LayerDrift:
    """Clusters of one layer compared with those of the shadow.

    Attributes:
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
        modularity, shadow_modularity: Modularity of level 0, with the configured resolution.
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
        number: Number of updates since the index was built from nothing.
        base: snapshot that was updated; None for a build from nothing.
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
        part: layer or communities that the figure is of; empty for the whole index.
        unit: a ratio has a lower limit, a share or number an upper one.
        limit: the smallest or largest value that holds.
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
        kernels: Kernels that computed the shadow.
        index_kernels: Kernels that the index was built with; others may find other clusters.
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
