"""States of rows by the chunks that pass a filter, on a toy index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hirag_dist.core.access import HIDDEN, PARTIAL, VISIBLE
from hirag_dist.core.arrays import read_only
from hirag_dist.core.metadata.columns import DERIVED, DIVISIBLE, WHOLE, LabelStates, Provenance, row_states

INTS, BYTES = np.int32, np.uint8
PROVENANCE = Provenance(
    # Entity 0 is in chunks 0 and 1, 1 in chunk 1, 2, as a whole, in chunks 1 and 2; 3 and 4 are summaries.
    entity_indptr=np.array([0, 2, 3, 5, 5, 5]),
    entity_chunks=np.array([0, 1, 1, 1, 2], INTS),
    entity_provenance=np.array([DIVISIBLE, WHOLE, WHOLE, WHOLE, WHOLE], BYTES),
    summary_indptr=np.array([0, 2, 4]),
    summary_members=np.array([0, 1, 3, -1], INTS),  # of 4 something is unknown
    relation_indptr=np.array([0, 2, 4, 4, 5]),
    relation_chunks=np.array([0, 1, 1, 2, 2], INTS),
    relation_provenance=np.array([DIVISIBLE, WHOLE, DERIVED, WHOLE], BYTES),
    community_indptr=np.array([0, 2, 3]),
    community_members=np.array([0, 1, 2], INTS),
)
NONE = LabelStates(np.zeros(0, INTS), np.zeros(0, BYTES), np.zeros(0, INTS), np.zeros(0, BYTES))


def states(chunks: list[int], labels: LabelStates = NONE, seen: list[int] | None = None) -> list[list[Any]]:
    """Return the states of entities, which of them are partial, and the states of relations and communities."""
    matching = np.isin(np.arange(3), chunks)
    visible = matching if seen is None else matching & np.isin(np.arange(3), seen)
    # As the index has them, so that the function is compiled once.
    mapped = Provenance(*map(read_only, PROVENANCE)), LabelStates(*map(read_only, labels))
    return [column.tolist() for column in row_states(*mapped, visible, matching)]


@pytest.mark.parametrize(
    ("chunks", "entities", "relations", "communities"),
    [
        ([0, 1, 2], [VISIBLE] * 4 + [HIDDEN], [VISIBLE] * 4, [True, True]),
        # A mention is enough for an entity, and not for what is known as a whole.
        ([1], [VISIBLE, VISIBLE, HIDDEN, HIDDEN, HIDDEN], [PARTIAL, HIDDEN, VISIBLE, HIDDEN], [False, False]),
        ([], [HIDDEN] * 5, [HIDDEN, HIDDEN, VISIBLE, HIDDEN], [False, False]),
    ],
)
def test_states_by_the_chunks_that_pass(
    chunks: list[int], entities: list[int], relations: list[int], communities: list[bool]
) -> None:
    is_partial = [chunks == [1], False, False, False, False]
    assert states(chunks) == [entities, is_partial, relations, communities]


def test_labels_hide_what_passes() -> None:
    """Chunk 1 may not be seen: entity 0 has parts, entity 1 and all that rests on it are hidden."""
    labels = LabelStates(
        np.array([0, 1, 1, 1, 1], INTS),
        np.array([PARTIAL, HIDDEN], BYTES),
        np.array([0, 1, 2, 2], INTS),
        np.array([PARTIAL, HIDDEN, VISIBLE], BYTES),
    )
    assert states([0, 1, 2], labels, seen=[0, 2]) == [
        [PARTIAL, HIDDEN, HIDDEN, HIDDEN, HIDDEN],
        [True, False, False, False, False],
        [PARTIAL, HIDDEN, VISIBLE, VISIBLE],
        [True, True],  # two of its three chunks pass
    ]
