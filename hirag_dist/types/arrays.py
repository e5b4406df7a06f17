"""Arrays that belong together: graphs, mixtures, projections, access filters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

FloatMatrix = NDArray[np.float32]
FloatVector = NDArray[np.float64]
IntVector = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CsrGraph:
    """An undirected weighted graph, each edge stored in both directions; a node is its row in `entities`.

    Attributes:
        indptr: (n_nodes + 1,) int64.
        indices: (n_entries,) int32 neighbours, ascending within a row.
        weights: (n_entries,) float32, positive.
        relation_rows: (n_entries,) int32 row in `relations` of the heaviest relation between the two.
    """

    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]
    weights: NDArray[np.float32]
    relation_rows: NDArray[np.int32]

    @property
    def n_nodes(self) -> int:
        """Nodes, isolated ones too."""
        return len(self.indptr) - 1


@dataclass(frozen=True, slots=True)
class WarmStart:
    """Communities of an earlier graph, from which those of a changed one are found.

    Attributes:
        levels: (n_nodes,) int64 labels of each level, coarsest first; −1 where a node was in no community of it.
        changed: (n_nodes,) bool: nodes that are new, whose edges changed, or that lost a neighbour.
    """

    levels: tuple[NDArray[np.int64], ...]
    changed: NDArray[np.bool_]


class AccessFilter(NamedTuple):
    """Visibility of an index with labelled documents for one caller.

    A row's state is that of its pattern (`core.access`): hidden, mixed, or whole. A mixed row
    consists of parts, one for each label set of the documents that mention it, and some of these are visible.

    Attributes:
        sets: (n_sets + 1,) bool, by label set, whether its documents are in reach.
        entity_patterns, relation_patterns: (n_rows,) int32.
        entity_states, relation_states: (n_patterns,) uint8.
        part_entities: (n_parts,) int32 entity row of each part, ascending.
        part_sets: (n_parts,) int32 label set.
        part_vectors: (n_parts, dim) float32.
        stated_rows: (n_stated,) int32 rows of the relations that have statements, ascending.
        stated_indptr: (n_stated + 1,) int64 where the statements of each begin.
        statement_sets: (n_statements,) int32 label set.
        statement_strengths: (n_statements,) float64; those in reach add up to a mixed relation's weight.
    """

    sets: NDArray[np.bool_]
    entity_patterns: NDArray[np.int32]
    entity_states: NDArray[np.uint8]
    relation_patterns: NDArray[np.int32]
    relation_states: NDArray[np.uint8]
    part_entities: NDArray[np.int32]
    part_sets: NDArray[np.int32]
    part_vectors: FloatMatrix
    stated_rows: NDArray[np.int32]
    stated_indptr: NDArray[np.int64]
    statement_sets: NDArray[np.int32]
    statement_strengths: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Mixture:
    """A Gaussian mixture (Eq. 7): k spherical components over d columns, all with one variance.

    Attributes:
        weights: (k,) shares, summing to 1.
        means: (k, d) float32.
        variance: variance of each component along any axis; a value of float32.
        min_variance: floor of the variance.
    """

    weights: FloatVector
    means: FloatMatrix
    variance: float
    min_variance: float

    @property
    def n_components(self) -> int:
        """Number of components k."""
        return len(self.weights)


@dataclass(frozen=True, slots=True)
class LabelledCell:
    """Rows of one cell with the clusters that its mixture starts from.

    Attributes:
        rows: (n, d) float32, finite, n ≥ 1, in the order of the layer.
        labels: (n,) int64 cluster of each row, from 0 on, none empty.
        is_home: (n,) bool, whether each row is at home in this cell; at least one is.
    """

    rows: FloatMatrix
    labels: IntVector
    is_home: NDArray[np.bool_]

    @property
    def n_labels(self) -> int:
        """Number of clusters."""
        return int(self.labels.max()) + 1


@dataclass(frozen=True, slots=True)
class Memberships:
    """Rows of one cell in the components that it keeps, sorted by (row, component).

    A membership is there where its share passes the threshold, or is the row's largest in this cell.

    Attributes:
        rows: (n_entries,) int64, positions within the cell.
        components: (n_entries,) int64, below `n_components`.
        shares: (n_entries,) float32 responsibilities within the cell.
        evidence: (n_entries,) float64 log of the cell's expected rows times their density at the row, in nats.
        n_components: that the cell keeps.
    """

    rows: IntVector
    components: IntVector
    shares: NDArray[np.float32]
    evidence: FloatVector
    n_components: int


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums of rows by their nearest mean; those of two sets of rows add up.

    The order in which they do decides the last bits.

    Attributes:
        counts: (k,) int64 rows.
        sums: (k, d) float64 of the rows.
        squares: squared lengths of all rows together.
    """

    counts: IntVector
    sums: FloatVector
    squares: float

    def __add__(self, other: GroupSums) -> GroupSums:
        return GroupSums(self.counts + other.counts, self.sums + other.sums, self.squares + other.squares)

    @property
    def spread(self) -> float:
        """Squared distances of all rows to the means of their groups, added up."""
        lengths = np.einsum("ij,ij->i", self.sums, self.sums)
        return max(self.squares - float(np.sum(lengths / np.maximum(self.counts, 1))), 0.0)

    def means(self, before: FloatMatrix) -> FloatMatrix:
        """Return (k, d) float32 means of the groups; one without rows stays where it was."""
        found = before.copy()
        some = self.counts > 0
        found[some] = (self.sums[some] / self.counts[some, None]).astype(np.float32)
        return found


@dataclass(frozen=True, slots=True)
class Assignment:
    """Sparse responsibilities, sorted by (row, component).

    Attributes:
        rows: (n_entries,) row of each entry.
        components: (n_entries,) component.
        shares: (n_entries,) float32 responsibility.
        log_densities: (n_rows,) float32 log density of each row under the mixture, in nats.
    """

    rows: IntVector
    components: IntVector
    shares: NDArray[np.float32]
    log_densities: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Moments:
    """Sums over rows, from which their covariance follows; those of two sets of rows add up.

    The order in which they do decides the last bits.

    Attributes:
        n_rows: rows summed.
        sums: (d,) float64.
        products: (d, d) float64 sum of outer products.
    """

    n_rows: int
    sums: FloatVector
    products: FloatVector

    def __add__(self, other: Moments) -> Moments:
        return Moments(self.n_rows + other.n_rows, self.sums + other.sums, self.products + other.products)


@dataclass(frozen=True, slots=True)
class Projection:
    """Axes of largest variance: a row's scores are `row @ axes - shift`.

    Attributes:
        axes: (d, c) float32, by falling variance; the largest entry of each is positive.
        shift: (c,) float32, the scores of the mean row.
    """

    axes: FloatMatrix
    shift: NDArray[np.float32]
