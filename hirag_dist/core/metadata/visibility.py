"""Visibility that follows from a set of chunks: of entities, relations and communities, counted in compiled code.

A label pattern stands for many rows; a filter may distinguish every document, so the state of each row is computed from
its chunks. An extracted entity is visible if one of its mentions is. What is known as a whole only (summary entities,
reports, entities of imported graphs) is visible if a share of its sources is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.labels import HIDDEN, PARTIAL, VISIBLE
from hirag_dist.core.numba_jit import compiled, compiled_apart

WHOLE, DIVISIBLE, DERIVED = 0, 1, 2
"""Provenance of a row: known as a whole; by mention; none of its own, as of relations to summaries."""
_ROUNDING = 1e-9


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
    share: float,
) -> Any:
    """Return `RowStates`.

    Args:
        visible: (n_chunks,) chunks that pass the filter and that the caller may see.
        matching: (n_chunks,) chunks that pass the filter.
        share: of the sources of a row that is known as a whole, from which on it is visible.
    """
    n_entities = len(provenance.entity_indptr) - 1
    n_summaries = len(provenance.summary_indptr) - 1
    first = n_entities - n_summaries
    # Float64 holds the counts of any layer: a summary counts the mentions behind all its members.
    passing, total = np.zeros(n_entities, np.float64), np.zeros(n_entities, np.float64)
    entities, partial = np.zeros(n_entities, np.uint8), np.zeros(n_entities, np.bool_)
    for row in range(first):
        begin, end = provenance.entity_indptr[row], provenance.entity_indptr[row + 1]
        n_visible = n_matching = 0
        for at in range(begin, end):
            chunk = provenance.entity_chunks[at]
            n_visible += visible[chunk]
            n_matching += matching[chunk]
        passing[row], total[row] = n_matching, end - begin
        state = _label_state(labels.entity_patterns, labels.entity_states, row)
        if n_visible == 0 or state == HIDDEN:
            continue
        if n_visible == end - begin:
            entities[row] = state
        elif provenance.entity_provenance[row] == DIVISIBLE:
            entities[row], partial[row] = state, True
        elif state == VISIBLE and _is_enough(passing[row], total[row], share):
            entities[row] = VISIBLE
    for summary in range(n_summaries):
        row = first + summary
        for at in range(provenance.summary_indptr[summary], provenance.summary_indptr[summary + 1]):
            member = provenance.summary_members[at]
            passing[row] += passing[member] if member >= 0 else 0.0
            total[row] += total[member] if member >= 0 else 1.0
        if _is_enough(passing[row], total[row], share):
            entities[row] = _label_state(labels.entity_patterns, labels.entity_states, row)
    communities = np.zeros(len(provenance.community_indptr) - 1, np.bool_)
    for community in range(len(communities)):
        own_passing = own_total = 0.0
        for at in range(provenance.community_indptr[community], provenance.community_indptr[community + 1]):
            own_passing += passing[provenance.community_members[at]]
            own_total += total[provenance.community_members[at]]
        communities[community] = _is_enough(own_passing, own_total, share)
    return RowStates(entities, partial, _relation_states(provenance, labels, visible, matching, share), communities)


@compiled
def _relation_states(
    provenance: Provenance,
    labels: LabelStates,
    visible: NDArray[np.bool_],
    matching: NDArray[np.bool_],
    share: float,
) -> Any:
    relations = np.zeros(len(provenance.relation_indptr) - 1, np.uint8)
    for row in range(len(relations)):
        state = _label_state(labels.relation_patterns, labels.relation_states, row)
        if state == HIDDEN or provenance.relation_provenance[row] == DERIVED:
            relations[row] = state
            continue
        begin, end = provenance.relation_indptr[row], provenance.relation_indptr[row + 1]
        n_visible = n_matching = 0
        for at in range(begin, end):
            chunk = provenance.relation_chunks[at]
            n_visible += visible[chunk]
            n_matching += matching[chunk]
        if n_visible == 0:
            continue
        if n_visible == end - begin:
            relations[row] = VISIBLE
        elif provenance.relation_provenance[row] == DIVISIBLE:
            relations[row] = PARTIAL
        elif state == VISIBLE and _is_enough(n_matching, end - begin, share):
            relations[row] = VISIBLE
    return relations


@compiled
def _label_state(patterns: NDArray[np.int32], states: NDArray[np.uint8], row: int) -> Any:
    return states[patterns[row]] if len(patterns) else np.uint8(VISIBLE)


@compiled
def _is_enough(passing: float, total: float, share: float) -> Any:
    return passing > 0 and passing >= share * total * (1.0 - _ROUNDING)
