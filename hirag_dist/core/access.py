"""Access labels as arithmetic on arrays: label sets of documents, label patterns of rows, and the filter of retrieval.

The distinct label sets of documents are numbered, and few. The sources of an entity, a relation or a report have a set
of these numbers, its *pattern*; patterns are numbered too, and far fewer than rows. The visibility for one caller is a
small array over patterns, so that nothing is stored for each caller and row.

The similarity of a partially visible entity is that of its nearest visible part; the weight of a partially visible
relation is the sum of its visible statements. With one label set visible, both equal those of an index without the
other documents.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core import arrays
from hirag_dist.core.arrays import compiled_apart
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN, SEPARATOR, join_descriptions
from hirag_dist.core.entities.summaries import split_descriptions
from hirag_dist.core.graph.csr import root
from hirag_dist.core.groupby import spans
from hirag_dist.core.vectors import Vectors
from hirag_dist.types import AccessFilter, CsrGraph, IntVector

Score = Callable[[Vectors, IntVector, NDArray[np.float32]], NDArray[np.float32]]


def read_only(access: AccessFilter) -> AccessFilter:
    """Return the filter with read-only arrays.

    Writable arrays are another type to compiled code, which would be compiled again for each combination.
    """
    return AccessFilter._make(map(arrays.read_only, access))


def visible_rows(access: AccessFilter, rows: NDArray[np.integer[Any]]) -> Flags:
    """Return flags of the entities that are visible, fully or partially: (n,)."""
    visible: Flags = access.entity_states[access.entity_patterns[rows]] != HIDDEN
    return visible


def visible_relations(access: AccessFilter, ends: NDArray[np.int32], rows: IntVector) -> Flags:
    """Return flags of the relations that are visible: those with a visible statement and both ends visible.

    Args:
        ends: (n, 2) entity rows of each.
        rows: (n,) of relations.
    """
    stated = access.relation_states[access.relation_patterns[rows]] != HIDDEN
    visible: Flags = stated & visible_rows(access, ends[:, 0]) & visible_rows(access, ends[:, 1])
    return visible


def visible_scores(
    access: AccessFilter, vectors: Vectors, rows: IntVector, query: NDArray[np.float32], score: Score
) -> NDArray[np.float32]:
    """Return the similarity to the question of visible entities: (n,).

    Args:
        score: (matrix, rows, question) → similarities.
    """
    scores = score(vectors, rows, query)
    partial = np.flatnonzero(access.entity_states[access.entity_patterns[rows]] == PARTIAL)
    if len(partial):
        entities = rows[partial]
        owner, parts = spans(*(np.searchsorted(access.part_entities, entities, side) for side in ("left", "right")))
        reached = access.sets[access.part_sets[parts]]
        best = np.full(len(entities), -np.inf, np.float32)
        np.maximum.at(best, owner[reached], score(access.part_vectors, parts[reached], query))
        scores[partial] = best
    return scores


def visible_weights(access: AccessFilter, weights: NDArray[np.float64], rows: IntVector) -> NDArray[np.float64]:
    """Return the weights of visible relations: (n,)."""
    visible = np.array(weights[rows], np.float64)
    partial = np.flatnonzero(access.relation_states[access.relation_patterns[rows]] == PARTIAL)
    if len(partial):
        position = np.searchsorted(access.stated_rows, rows[partial])
        owner, statements = spans(access.stated_indptr[position], access.stated_indptr[position + 1])
        reached = access.sets[access.statement_sets[statements]]
        strengths = access.statement_strengths[statements[reached]]
        # in order, as merging adds them
        visible[partial] = np.bincount(owner[reached], strengths, minlength=len(partial))
    return visible


def visible_components(graph: CsrGraph, access: AccessFilter) -> NDArray[np.int32]:
    """Return the connected component of each node, named by its lowest row; a hidden node is one by itself.

    Returns:
        (n_nodes,), read-only, as the mapped one of the whole graph is: kernels are compiled for one type.
    """
    components: NDArray[np.int32] = _components(graph.indptr, graph.indices, graph.relation_rows, access)
    return arrays.read_only(components)


@compiled_apart
def _components(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], relation_rows: NDArray[np.int32], access: AccessFilter
) -> Any:
    parents = np.arange(len(indptr) - 1).astype(np.int32)  # never above the node itself
    for node in range(len(parents)):
        if access.entity_states[access.entity_patterns[node]] == HIDDEN:
            continue
        for entry in range(indptr[node], indptr[node + 1]):
            neighbour = indices[entry]
            if (
                neighbour < node  # each edge has two entries
                and access.entity_states[access.entity_patterns[neighbour]] != HIDDEN
                and access.relation_states[access.relation_patterns[relation_rows[entry]]] != HIDDEN
            ):
                one, other = root(parents, node), root(parents, neighbour)
                parents[max(one, other)] = min(one, other)
    for node in range(len(parents)):
        parents[node] = parents[parents[node]]  # lower rows have their root already
    return parents


AccessRule = Literal["all", "any"]
Flags = NDArray[np.bool_]
_MAX_CHARS = 2 * CHARS_PER_TOKEN  # of a token: more than prose has, so that no text within the limit of tokens is cut
HIDDEN, PARTIAL, VISIBLE = 0, 1, 2  # by which of its mentions are visible: none, some, all


def label_sets(labels: Iterable[Sequence[str]]) -> tuple[NDArray[np.int32], list[tuple[str, ...]]]:
    """Return the number of each document's label set (n_documents,), and the sets by number, in their order.

    >>> label_sets([["b", "a"], [], ["a", "b"]])
    (array([1, 0, 1], dtype=int32), [(), ('a', 'b')])
    """
    rows = [tuple(sorted(set(row))) for row in labels]
    sets = sorted(set(rows))
    number = {row: at for at, row in enumerate(sets)}
    return np.fromiter((number[row] for row in rows), np.int32, len(rows)), sets


def sets_in_reach(
    sets: Sequence[tuple[str, ...]],
    reach: Collection[str] | None,
    required: Collection[str] = (),
    rule: AccessRule = "all",
) -> Flags:
    """Return flags of the label sets whose documents may be searched: (n_sets,).

    Args:
        reach: the labels that the caller holds; None: everything is visible.
        required: labels that every document searched must carry.
        rule: whether a caller needs all labels of a document to see it, or any; documents without labels are visible.
    """
    labels_held = None if reach is None else frozenset(reach)
    wanted = frozenset(required)

    def within(labels: tuple[str, ...]) -> bool:
        if not wanted.issubset(labels):
            return False
        if labels_held is None or not labels:
            return True
        return labels_held.issuperset(labels) if rule == "all" else not labels_held.isdisjoint(labels)

    return np.fromiter((within(labels) for labels in sets), np.bool_, len(sets))


@dataclass(frozen=True, slots=True)
class LabelPatterns:
    """Label patterns of rows: rows whose sources have the same label sets share a pattern.

    Attributes:
        of: (n_rows,) int32 pattern of each row.
        indptr, sets: CSR, pattern → label sets, ascending.
        divisible: (n_patterns,) whether the content of these rows is known by label set. Other rows are never
            partially visible.
    """

    of: NDArray[np.int32]
    indptr: IntVector
    sets: NDArray[np.int32]
    divisible: Flags

    def states(self, in_reach: Flags) -> NDArray[np.uint8]:
        """Return HIDDEN, PARTIAL or VISIBLE for each pattern; VISIBLE for one without label sets.

        Args:
            in_reach: (n_sets,) by label set.
        """
        sizes = np.diff(self.indptr)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        n_visible = np.bincount(owner, in_reach[self.sets], minlength=len(sizes))
        states = np.where(n_visible == sizes, VISIBLE, HIDDEN)
        states[(n_visible > 0) & (n_visible < sizes) & self.divisible] = PARTIAL
        return states.astype(np.uint8)


def patterns(rows: IntVector, sets: IntVector, n_rows: int, divisible: Flags | None = None) -> LabelPatterns:
    """Return the patterns of rows.

    Args:
        rows, sets: (n_pairs,) a source of row `rows[i]` has label set `sets[i]`; in any order, with repetitions.
        divisible: (n_rows,) see `LabelPatterns`; None: none is.
    """
    width = max(int(sets.max(initial=-1)) + 1, 1)
    pairs = np.unique(np.asarray(rows, np.int64) * width + sets)
    owner, value = pairs // width, pairs % width
    sizes = np.bincount(owner, minlength=n_rows)
    starts = np.concatenate([[0], np.cumsum(sizes)])[:-1]
    # Rows are distinguished a set at a time: the number of the sets so far and the next set give the next number.
    number = np.zeros(n_rows, np.int64) if divisible is None else divisible.astype(np.int64)
    found = np.empty(n_rows, np.int32)
    heads: list[IntVector] = []  # a row of each pattern
    n_patterns = 0
    going = np.arange(n_rows)
    for position in range(int(sizes.max(initial=0)) + 1):
        done = going[sizes[going] == position]
        _, first, inverse = np.unique(number[done], return_index=True, return_inverse=True)
        found[done] = n_patterns + inverse
        heads.append(done[first])
        n_patterns += len(first)
        going = going[sizes[going] > position]
        keys = number[going] * width + value[starts[going] + position]
        number[going] = np.unique(keys, return_inverse=True)[1]
    head = np.concatenate(heads) if heads else np.empty(0, np.int64)
    kept = np.zeros(n_patterns, np.bool_) if divisible is None else divisible[head]
    indptr = np.concatenate([[0], np.cumsum(sizes[head])]).astype(np.int64)
    _, at = spans(starts[head], starts[head] + sizes[head])
    return LabelPatterns(found, indptr, value[at].astype(np.int32), kept)


def pattern_of_sets(owners: IntVector, of: NDArray[np.int32], known: LabelPatterns) -> tuple[IntVector, IntVector]:
    """Return (owners, sets), each pair once: the label sets of the sources of each owner.

    Args:
        owners: (n,) rows derived from others, in any order.
        of: (n,) the pattern of a source of each.
        known: the patterns of the sources.
    """
    width = max(len(known.divisible), 1)
    pairs = np.unique(np.asarray(owners, np.int64) * width + of)
    owner, pattern = pairs // width, pairs % width
    place, at = spans(known.indptr[pattern], known.indptr[pattern + 1])
    return owner[place], known.sets[at].astype(np.int64)


def description_of(merged: str, max_tokens: int) -> str:
    """Return one description from merged mentions: that of the build, where no model summarised it.

    Args:
        merged: distinct descriptions, one a line.
        max_tokens: limit above which a build asks a model for a summary. Here descriptions are joined up to about
            twice that.
    """
    if SEPARATOR not in merged:
        return merged
    pieces = split_descriptions(merged)
    whole = " ".join(pieces)
    limit = max_tokens * _MAX_CHARS
    return whole if len(whole) <= limit else join_descriptions(pieces, limit)
