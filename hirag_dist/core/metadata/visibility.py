"""Visibility that follows from a set of chunks: of entities, relations and communities, counted in compiled code.

A label pattern stands for many rows; a filter may distinguish every document, so the state of each row is computed from
its chunks. An extracted entity is visible if one of its mentions is. What is known as a whole only (summary entities,
reports, entities of imported graphs) is visible if all of its sources are.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, PARTIAL, VISIBLE
from hirag_dist.core.numba_jit import compiled, compiled_apart

WHOLE, DIVISIBLE, DERIVED = 0, 1, 2
"""Provenance of a row: known as a whole; by mention; none of its own, as of relations to summaries."""


class Provenance(NamedTuple):
    """The sources of the rows of an index.

    Attributes:
        entity_indptr, entity_chunks: CSR, entity → chunks that mention it; none above layer 0.
        entity_provenance: (n_entities,) uint8.
        summary_indptr, summary_members: CSR, summary entity, counted from the first → entities behind it; −1 for an
            unknown one.
        relation_indptr, relation_chunks: CSR, relation → chunks that state it.
        relation_provenance: (n_relations,) uint8.
        community_indptr, community_members: CSR, community → entities.
    """

    entity_indptr: NDArray[np.int64]
    entity_chunks: NDArray[np.int32]
    entity_provenance: NDArray[np.uint8]
    summary_indptr: NDArray[np.int64]
    summary_members: NDArray[np.int32]
    relation_indptr: NDArray[np.int64]
    relation_chunks: NDArray[np.int32]
    relation_provenance: NDArray[np.uint8]
    community_indptr: NDArray[np.int64]
    community_members: NDArray[np.int32]


class LabelStates(NamedTuple):
    """Visibility of rows by labels; empty arrays: all rows are visible.

    Attributes:
        entity_patterns, relation_patterns: (n_rows,) int32.
        entity_states, relation_states: (n_patterns,) uint8.
    """

    entity_patterns: NDArray[np.int32]
    entity_states: NDArray[np.uint8]
    relation_patterns: NDArray[np.int32]
    relation_states: NDArray[np.uint8]


class RowStates(NamedTuple):
    """Visibility of the rows of an index under a filter.

    Attributes:
        entities: (n_entities,) uint8; PARTIAL only where labels hide a mention.
        partial_entities: (n_entities,) bool, visible ones whose text comes from some of their mentions.
        relations: (n_relations,) uint8.
        communities: (n_communities,) bool, whether enough of the sources pass the filter.
    """

    entities: NDArray[np.uint8]
    partial_entities: NDArray[np.bool_]
    relations: NDArray[np.uint8]
    communities: NDArray[np.bool_]


@compiled_apart
def row_states(
    provenance: Provenance,
    labels: LabelStates,
    visible: NDArray[np.bool_],
    matching: NDArray[np.bool_],
) -> Any:
    """Return `RowStates`.

    Args:
        visible: (n_chunks,) chunks that pass the filter and that the caller may see.
        matching: (n_chunks,) chunks that pass the filter.
    """
    n_entities = len(provenance.entity_indptr) - 1
    passing, total = np.zeros(n_entities, np.float64), np.zeros(n_entities, np.float64)
    by_label = _label_states(labels.entity_patterns, labels.entity_states, n_entities)
    first = n_entities - len(provenance.summary_indptr) + 1
    entities = np.zeros(n_entities, np.uint8)
    indptr, chunks, kinds = provenance.entity_indptr, provenance.entity_chunks, provenance.entity_provenance
    # Float64 holds the counts of any layer: a summary counts the mentions behind all its members.
    _count(indptr, chunks, kinds, by_label, visible, matching, first, entities, passing, total)
    partial = entities == PARTIAL
    entities[partial] = by_label[partial]  # parts of entities have vectors by label, not by filter
    indptr, members = provenance.summary_indptr, provenance.summary_members
    for row in range(first, n_entities):
        for at in range(indptr[row - first], indptr[row - first + 1]):
            member = members[at]
            passing[row] += passing[member] if member >= 0 else 0.0
            total[row] += total[member] if member >= 0 else 1.0
        if _are_all(passing[row], total[row]):
            entities[row] = by_label[row]
    n_relations = len(provenance.relation_indptr) - 1
    by_label = _label_states(labels.relation_patterns, labels.relation_states, n_relations)
    relations = np.zeros(n_relations, np.uint8)
    indptr, chunks, kinds = provenance.relation_indptr, provenance.relation_chunks, provenance.relation_provenance
    none = np.zeros(0, np.float64)
    _count(indptr, chunks, kinds, by_label, visible, matching, n_relations, relations, none, none)
    indptr, members = provenance.community_indptr, provenance.community_members
    communities = np.zeros(len(indptr) - 1, np.bool_)
    for row in range(len(communities)):
        own_passing = own_total = 0.0
        for at in range(indptr[row], indptr[row + 1]):
            own_passing += passing[members[at]]
            own_total += total[members[at]]
        communities[row] = _are_all(own_passing, own_total)
    return RowStates(entities, partial, relations, communities)


@compiled
def _count(
    indptr: NDArray[np.int64],
    chunks: NDArray[np.int32],
    kinds: NDArray[np.uint8],
    by_label: NDArray[np.uint8],
    visible: NDArray[np.bool_],
    matching: NDArray[np.bool_],
    n_rows: int,
    states: NDArray[np.uint8],
    passing: NDArray[np.float64],
    total: NDArray[np.float64],
) -> None:
    """Write the states of the first rows, PARTIAL for those whose text comes from a part of their chunks.

    Args:
        indptr, chunks: CSR, row → chunks.
        kinds: provenance of the rows.
        by_label: states by labels alone.
        states: to write.
        passing, total: to write, where they are not empty: chunks of each row that pass the filter, and all.
    """
    end = indptr[0]
    for row in range(n_rows):
        begin, end = end, indptr[row + 1]
        n_visible = n_matching = 0
        for at in range(begin, end):
            chunk = np.uint32(chunks[at])  # without a sign there is no test for positions from the end
            n_visible += visible[chunk]
            n_matching += matching[chunk]
        if len(total):
            passing[row], total[row] = n_matching, end - begin
        if by_label[row] == HIDDEN:
            continue
        if kinds[row] == DERIVED or (n_visible == end - begin and n_visible):
            states[row] = by_label[row]
        elif kinds[row] == DIVISIBLE and n_visible:
            states[row] = PARTIAL
        elif by_label[row] == VISIBLE and _are_all(n_matching, end - begin):
            states[row] = VISIBLE


@compiled
def _label_states(patterns: NDArray[np.int32], states: NDArray[np.uint8], n_rows: int) -> Any:
    found = np.full(n_rows, VISIBLE, np.uint8)
    for row in range(len(patterns)):
        found[row] = states[patterns[row]]
    return found


@compiled
def _are_all(passing: float, total: float) -> Any:
    return passing > 0 and passing >= total
