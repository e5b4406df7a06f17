"""Source ranking: the chunks that a question is about, by personalised PageRank from seeds near the question.

The random walk (`core.graph.pagerank`) has four groups of seeds, with the shares `SHARES` of its restarts:

  named        entities whose names occur in the question
  retrieved    the nearest entities, and the triples of the bridge
  near         the nearest chunks by their vectors
  words        the chunks with the question's words (`core.retrieval.lexical`)

In each group the few best are seeds, weighted by how much better they are than the last of them. An entity that many
chunks mention says little about each of them, so its weight is divided by their number. The group of a caller or a
configuration that has none leaves its share to the others.

The chunks that the walk reaches most are then put in order by three facts more, which multiply their shares: how much
a walk from the named entities alone reaches them, how near they are to the question, and whether they mention a rare
entity together with the best of them, of another document, that the question does not name. Such an entity is where a
question over two documents leads from the first to the second.

docs/research/source-ranking.md says how the constants were chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN
from hirag_dist.core.arrays import Steps
from hirag_dist.core.graph.pagerank import TOLERANCE, VisibleEdges, WalkBuffers, WalkGraph, pagerank_steps
from hirag_dist.core.groupby import spans
from hirag_dist.types import AccessFilter, FloatVector, IntVector

NEAREST: Final = 10  # seeds of each kind but words
WORDS: Final = 10  # seeds by words
SHARES: Final[Mapping[str, float]] = {"named": 1.0, "retrieved": 1.0, "near": 2.0, "words": 2.0}
FULL_TOLERANCE: Final = 7  # chunks that `TOLERANCE` is small enough for
MIN_TOLERANCE: Final = 5e-6
CANDIDATES: Final = 20  # chunks that are put in order after the walk, and nearest chunks that closeness is measured by
CLOSENESS: Final = 0.3  # logarithm of the factor of the nearest chunk; 0 of the last of the nearest
NAMED: Final = 0.1  # power of the share of a walk from the named entities alone
_LEAST_NAMED: Final = 1e-5  # share that a chunk has in that walk at least
_MANY_CHUNKS: Final = 10_000  # among which an entity of a few is rare
LINK: Final = 2.5  # logarithm of the factor of a link by an entity that is worth 1 (`link_worth`)

Scored = Sequence[tuple[int, float]]
Similarities = Callable[[IntVector], NDArray[np.float32]]  # chunk rows → similarity of each to the question
_Group = tuple[IntVector, FloatVector]  # nodes, and the weight of each


class RelationProvenance(NamedTuple):
    """The chunks of relations.

    Attributes:
        relation_indptr, relation_chunks: CSR, relation → chunk rows.
    """

    relation_indptr: IntVector
    relation_chunks: NDArray[np.int32]


class SeedSet:
    """The seeds of a question's random walk."""

    def __init__(
        self,
        walk_graph: WalkGraph,
        provenance: RelationProvenance,
        visible_chunks: NDArray[np.bool_] | None = None,
        access: AccessFilter | None = None,
        buffers: WalkBuffers | None = None,
        visible: VisibleEdges | None = None,
    ) -> None:
        """Begin without seeds.

        Args:
            visible_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
            access: which entities and relations the caller may see; None: every one.
            buffers: of walks over the graph; None: new ones.
            visible: edges that walks under the same filter have found; None: none.
        """
        self._visible = visible
        self._buffers = buffers
        self._walk_graph = walk_graph
        self._provenance = provenance
        self._visible_chunks = visible_chunks
        self._access = access
        self._groups: dict[str, list[_Group]] = {kind: [] for kind in SHARES}
        self._similarity_range = (0.0, 0.0)  # of the nearest chunks

    def of_names(self, rows: Sequence[int]) -> None:
        """Add entities that the question names."""
        nodes = np.array(rows, np.int64)
        self._add("named", nodes, 1.0 / self._mentions(nodes))

    def of_entities(self, scored: Scored) -> None:
        """Add retrieved entities, weighted by their similarity to the question."""
        nodes, scores = _columns(_best_first(scored))
        self._add("retrieved", nodes, excess(scores) / self._mentions(nodes))

    def of_relations(self, scored: Scored) -> None:
        """Add the chunks that state retrieved relations, weighted by the relations' scores."""
        rows, scores = _columns(_best_first(scored))
        owner, chunks = self._chunks(self._provenance.relation_indptr, self._provenance.relation_chunks, rows)
        stated = np.bincount(owner, minlength=len(rows))
        worth = (excess(scores) / np.maximum(stated, 1))[owner]
        self._add("retrieved", chunks + len(self._walk_graph.layers), worth)

    def of_chunks(self, scored: Scored) -> None:
        """Add the nearest `CANDIDATES` chunks, best first and ties by row, the best as seeds by their similarity."""
        if scored:
            self._similarity_range = (scored[-1][1], scored[0][1])
        rows, scores = _columns(scored[:NEAREST])
        self._add("near", rows + len(self._walk_graph.layers), excess(scores))

    def of_words(self, scored: Scored) -> None:
        """Add chunks with the question's words, best first and ties by row, weighted by their lexical scores."""
        rows, scores = _columns(scored[:WORDS])
        self._add("words", rows + len(self._walk_graph.layers), excess(scores))

    def _add(self, kind: str, nodes: IntVector, worth: FloatVector) -> None:
        """Add the nodes of some worth to the seeds of a kind, those of one call with weights that are 1 together."""
        total, counts = worth.sum(), worth > 0
        if total > 0:
            self._groups[kind].append((nodes[counts], worth[counts] / total))

    def ranked_steps(
        self, limit: int, similarities: Similarities | None = None, documents: NDArray[np.int32] | None = None
    ) -> Steps[list[tuple[int, float]]]:
        """Return (chunk row, score), best first, ties by row, step by step.

        The score is the share of the walk, times the factors of names, closeness and link. The lower a rank, the
        smaller the differences of the shares there, so the tolerance of the walk shrinks with the limit
        (`tolerance_of`).

        Args:
            similarities: Similarities of chunks to the question; None: the walk alone decides.
            documents: (n_chunks,) row of the document of each chunk; None: each chunk is a document of its own.
        """
        if similarities is None:
            rows, scores, _ = yield from self._walked(limit, tolerance_of(limit), apart=False)
            return list(zip(rows.tolist(), scores.tolist(), strict=True))
        rows, scores, named = yield from self._walked(max(limit, CANDIDATES), tolerance_of(limit), apart=True)
        if not len(rows):
            return []
        scores = scores * (named + _LEAST_NAMED) ** NAMED * np.exp(CLOSENESS * self._closeness(similarities(rows)))
        first = int(np.lexsort((rows, -scores))[0])
        scores = scores * np.exp(LINK * self._links(rows, first, rows if documents is None else documents[rows]))
        best = np.lexsort((rows, -scores))[:limit]
        return list(zip(rows[best].tolist(), scores[best].tolist(), strict=True))

    def _walked(
        self, limit: int, tolerance: float, *, apart: bool
    ) -> Steps[tuple[IntVector, FloatVector, FloatVector]]:
        """Return the chunks that the walk reaches most, its share at each, and that of a walk from the names alone.

        A walk is the sum of walks from parts of its seeds, so telling the names apart costs no more.

        Args:
            apart: walk from the named entities and from the other seeds one after the other; otherwise the shares from
                the names are 0, as they are without names.
        """
        walk = partial(
            pagerank_steps,
            self._walk_graph,
            access=self._access,
            seen=self._visible_chunks,
            tolerance=tolerance,
            buffers=self._buffers,
            visible=self._visible,
        )
        nodes, weights = self._seeds()
        n_named = sum(len(own) for own, _ in self._groups["named"]) if apart else 0
        rows, mass = yield from walk(nodes[n_named:], weights[n_named:])
        from_names = np.zeros(len(rows))
        if n_named:
            named_rows, named_mass = yield from walk(nodes[:n_named], weights[:n_named])
            n_others, masses = len(rows), np.concatenate([mass, named_mass])
            rows, at = np.unique(np.concatenate([rows, named_rows]), return_inverse=True)
            mass = np.bincount(at, masses).astype(np.float64, copy=False)
            from_names = np.bincount(at[n_others:], named_mass, len(rows)) / weights[:n_named].sum()
        best = np.lexsort((rows, -mass))[:limit]
        return rows[best], mass[best], from_names[best]

    def _seeds(self) -> _Group:
        """Return all seeds, the named ones first; the weights of all together are 1."""
        kinds = [kind for kind, groups in self._groups.items() if groups]
        total = sum(SHARES[kind] for kind in kinds)
        nodes, weights = [np.zeros(0, np.int64)], [np.zeros(0)]
        for kind in kinds:
            groups = self._groups[kind]
            own = np.concatenate([worth for _, worth in groups]) / len(groups)
            weights.append(own / own.sum() * (SHARES[kind] / total))
            nodes += [rows for rows, _ in groups]
        return np.concatenate(nodes), np.concatenate(weights)

    def _closeness(self, similarities: NDArray[np.float32]) -> FloatVector:
        """Return similarities in units of the range of the nearest chunks: 1 for the nearest, 0 for the last of them.

        So a similarity counts the same whatever the embedder; it is below 0 where a chunk is not among them.
        """
        low, high = self._similarity_range
        if high <= low:
            return np.zeros(len(similarities))
        return (similarities.astype(np.float64) - low) / (high - low)

    def _links(self, rows: IntVector, first: int, documents: NDArray[np.signedinteger]) -> FloatVector:
        """Return the worth of the rarest entity that each chunk shares with one of them, 0 without any: (len(rows),).

        Entities that the question names do not count: they led the walk there. Nor do chunks of the same document,
        which share many entities and lead to no other one. The chunk itself has the largest worth
        of the others, so that none is put before it for a link to it.

        Args:
            first: place in `rows` of the one that the others are compared with.
            documents: (len(rows),) document of each.
        """
        graph = self._walk_graph
        owner, entries = spans(graph.chunk_indptr[rows], graph.chunk_indptr[rows + 1])
        entities = graph.chunk_entities[entries]
        named = {node for nodes, _ in self._groups["named"] for node in nodes.tolist()}
        shared_by = np.array([row for row in entities[owner == first].tolist() if row not in named], np.int64)
        if self._access is not None:
            states = self._access.entity_states[self._access.entity_patterns[shared_by]]
            shared_by = shared_by[states != HIDDEN]
        seen = self._visible_chunks
        n_chunks = len(graph.chunk_indptr) - 1 if seen is None else int(np.count_nonzero(seen))
        worth = link_worth(self._mentions(shared_by), n_chunks)
        found = np.zeros(len(rows))
        if len(shared_by):
            at = np.minimum(np.searchsorted(shared_by, entities), len(shared_by) - 1)
            is_shared = (shared_by[at] == entities) & (documents != documents[first])[owner]
            np.maximum.at(found, owner[is_shared], worth[at[is_shared]])
        found[first] = found.max()
        return found

    def _mentions(self, rows: IntVector) -> FloatVector:
        """Return the number of chunks that mention each entity, at least 1."""
        indptr = self._walk_graph.entity_indptr
        counts: IntVector = indptr[rows + 1] - indptr[rows]
        if self._visible_chunks is not None:
            counts = np.bincount(self._chunks(indptr, self._walk_graph.entity_chunks, rows)[0], minlength=len(rows))
        return np.maximum(counts, 1).astype(np.float64)

    def _chunks(self, indptr: IntVector, chunks: NDArray[np.int32], rows: IntVector) -> tuple[IntVector, IntVector]:
        """Return (owners, chunks) of some rows, without hidden chunks."""
        owner, entries = spans(indptr[rows], indptr[rows + 1])
        rows_of_chunks = chunks[entries].astype(np.int64)
        if self._visible_chunks is None:
            return owner, rows_of_chunks
        kept = self._visible_chunks[rows_of_chunks]
        return owner[kept], rows_of_chunks[kept]


def tolerance_of(limit: int) -> float:
    """Return the tolerance of a walk of which so many chunks are returned.

    >>> f"{tolerance_of(7):.1e}, {tolerance_of(10):.1e}, {tolerance_of(20):.1e}"
    '1.0e-04, 4.9e-05, 1.2e-05'
    """
    return max(TOLERANCE * min(1.0, FULL_TOLERANCE / max(limit, 1)) ** 2, MIN_TOLERANCE)


def link_worth(mentions: FloatVector, n_chunks: int) -> FloatVector:
    """Return how much it says that two chunks mention an entity: the less, the more chunks do and the fewer there are.

    Args:
        mentions: (n,) chunks that mention each entity, at least 1.

    >>> link_worth(np.array([2.0, 10.0, 1000.0]), 10_000).round(2)
    array([0.78, 0.23, 0.01])
    >>> link_worth(np.array([2.0, 10.0]), 100).round(2)
    array([0.16, 0.03])
    """
    found: FloatVector = (np.log(n_chunks / mentions) / np.log(_MANY_CHUNKS)) ** 2 / np.log1p(mentions)
    return found


def excess(scores: Sequence[float]) -> FloatVector:
    """Return the weights of some of the best: the square of their excess over the last of them.

    A similarity that nearly all rows have is no evidence, and its level differs between embedders; the square keeps the
    end of the list from mattering. Equal scores have equal weights.

    Args:
        scores: Scores of the best rows, best first.

    >>> excess([0.9, 0.6, 0.5]).round(2)
    array([0.16, 0.01, 0.  ])
    """
    above = [score - scores[-1] for score in scores]
    return np.array([each * each for each in above] if any(above) else [1.0] * len(above))


def _best_first(scored: Scored) -> Scored:
    """Return the best `NEAREST`, best first, ties by row."""
    return sorted(scored, key=lambda one: (-one[1], one[0]))[:NEAREST]


def _columns(scored: Scored) -> tuple[IntVector, list[float]]:
    return np.array([row for row, _ in scored], np.int64), [score for _, score in scored]
