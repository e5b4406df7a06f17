"""Which chunks hold what a question is about: a walk over the graph from what is known to be near it.

The walk (`core.graph.pagerank`) starts, each as often as the others, from

  what the question names        entities whose names stand in it
  what was retrieved for it      the nearest entities, and the triples of the bridge
  passages that are near it      the nearest chunks; left out where the ranking shall do without their vectors

Of each kind the few nearest are starting points, by how much nearer they are than the last of them. What many chunks
mention says little of each of them, so an entity counts less the more there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.core.cooperative import Steps
from hirag_dist.core.graph.pagerank import WalkGraph, pagerank_steps
from hirag_dist.types import AccessFilter, FloatVector, IntVector

NEAREST: Final = 5  # of each kind that a walk starts from

Scored = Sequence[tuple[int, float]]
_Group = tuple[IntVector, FloatVector]  # nodes, and how much each counts


class RelationProvenance(NamedTuple):
    """Where relations come from.

    Attributes:
        relation_indptr, relation_chunks: CSR, relation → chunk rows.
    """

    relation_indptr: IntVector
    relation_chunks: NDArray[np.int32]


class SeedSet:
    """The starting points of a question's walk."""

    def __init__(
        self,
        ways: WalkGraph,
        origins: RelationProvenance,
        seen: NDArray[np.bool_] | None = None,
        access: AccessFilter | None = None,
    ) -> None:
        """Begin without any.

        Args:
            ways: where the walk may go.
            origins: of relations.
            seen: (n_chunks,) whether the caller may see a chunk; None: every one.
            access: which entities and relations the caller may see; None: every one.
        """
        self._ways = ways
        self._origins = origins
        self._seen = seen
        self._access = access
        self._named: list[_Group] = []
        self._retrieved: list[_Group] = []
        self._near: list[_Group] = []

    def of_names(self, rows: Sequence[int]) -> None:
        """Start from entities that the question names."""
        nodes = np.array(rows, np.int64)
        self._named.append((nodes, 1.0 / self._mentions(nodes)))

    def of_entities(self, scored: Scored) -> None:
        """Start from entities that were retrieved, by their similarity to the question."""
        nodes, scores = _columns(scored)
        self._retrieved.append((nodes, excess(scores) / self._mentions(nodes)))

    def of_relations(self, scored: Scored) -> None:
        """Start from the chunks that state relations that were retrieved, by the relations' scores."""
        rows, scores = _columns(scored)
        owner, chunks = self._chunks(self._origins.relation_indptr, self._origins.relation_chunks, rows)
        stated = np.bincount(owner, minlength=len(rows))
        self._retrieved.append((chunks + len(self._ways.layers), (excess(scores) / np.maximum(stated, 1))[owner]))

    def of_chunks(self, scored: Scored) -> None:
        """Start from chunks that are near the question, by their similarity to it."""
        rows, scores = _columns(scored)
        self._near.append((rows + len(self._ways.layers), excess(scores)))

    def ranked_steps(self, limit: int) -> Steps[list[tuple[int, float]]]:
        """Return (chunk row, share of the walk), best first, ties by row, step by step."""
        nodes, shares = shared([shared(self._named), shared(self._retrieved), shared(self._near)])
        rows, mass = yield from pagerank_steps(self._ways, nodes, shares, self._access, self._seen)
        best = np.lexsort((rows, -mass))[:limit]
        return list(zip(rows[best].tolist(), mass[best].tolist(), strict=True))

    def _mentions(self, rows: IntVector) -> FloatVector:
        """Return how many chunks mention each entity, 1 for one that has none."""
        owner, _ = self._chunks(self._ways.entity_indptr, self._ways.entity_chunks, rows)
        return np.maximum(np.bincount(owner, minlength=len(rows)), 1).astype(np.float64)

    def _chunks(self, indptr: IntVector, chunks: NDArray[np.int32], rows: IntVector) -> tuple[IntVector, IntVector]:
        """Return (owners, chunks) of some rows, of those that may be seen."""
        owner, entries = spans(indptr[rows], indptr[rows + 1])
        found = chunks[entries].astype(np.int64)
        if self._seen is None:
            return owner, found
        kept = self._seen[found]
        return owner[kept], found[kept]


def excess(scores: FloatVector) -> FloatVector:
    """Return how much some of the best count: the square of what they have more than the last of them.

    What nearly everything has tells nothing, and embedders differ in how much that is; the square keeps the ends of the
    list from mattering. Where all are equal, so is what they count.

    Args:
        scores: (n,) of the best.

    >>> excess(np.array([0.9, 0.6, 0.5])).round(2)
    array([0.16, 0.01, 0.  ])
    """
    above = scores - scores.min(initial=np.inf)
    return above**2 if above.any() else np.ones(len(scores))


def shared(groups: Sequence[_Group]) -> _Group:
    """Return all nodes of some groups, each group with an equal share of 1; those that are empty have none.

    >>> shared([(np.array([3]), np.array([2.0])), (np.array([4, 5]), np.array([3.0, 1.0]))])
    (array([3, 4, 5]), array([0.5  , 0.375, 0.125]))
    """
    kept = []
    for nodes, worth in groups:
        counts = worth > 0
        if counts.any():
            kept.append((nodes[counts], worth[counts] / worth.sum()))
    if not kept:
        return np.zeros(0, np.int64), np.zeros(0)
    return np.concatenate([nodes for nodes, _ in kept]), np.concatenate([worth for _, worth in kept]) / len(kept)


def _columns(scored: Scored) -> tuple[IntVector, FloatVector]:
    """Return the rows and scores of the `NEAREST` best, best first, ties by row."""
    rows = np.array([row for row, _ in scored], np.int64)
    scores = np.array([score for _, score in scored], np.float64)
    best = np.lexsort((rows, -scores))[:NEAREST]
    return rows[best], scores[best]
