"""Access labels in a Milvus collection: its fields for them, and the filters that hide rows from a caller.

In addition to its layer a row has its pattern (`core.access.labels`) and, for a part of an entity with several label
sets, the label set. Both are stored as hashes of the labels: the numbers of one snapshot mean something else in the
next.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import PARTIAL, VISIBLE
from hirag_dist.retrieval.vector_index.milvus.row_keys import label_set_numbers, pattern_numbers
from hirag_dist.storage.label_files import LabelFiles, read_label_sets
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter, FloatMatrix, IntVector

PATTERN = "pattern"
PART = "part"  # label set of a part, −1 for an entity
WHOLE_ROWS = f"{PART} == -1"
_MAX_LISTED = 4096
_MAX_FILTERS = 64  # cached


class RowFilter(NamedTuple):
    """A filter expression of Milvus, and the number of rows that pass it."""

    text: str
    n_rows: int


class LabelledRows:
    """Rows of the collection of a snapshot with labels: its entities, followed by the parts of entities."""

    def __init__(self, snapshot: Snapshot, max_listed: int = _MAX_LISTED) -> None:
        """Map the label files of a snapshot with labels. A filter lists at most `max_listed` patterns."""
        files = LabelFiles(snapshot)
        self._patterns = files.entities
        self.n_entities = len(files.entities.of)
        self.part_vectors: FloatMatrix = files.part_vectors
        self._part_entities = files.part_entities
        self._part_sets = files.part_sets
        self._max_listed = max_listed
        self._set_numbers = label_set_numbers(read_label_sets(snapshot))
        self._pattern_numbers = pattern_numbers(files.entities, self._set_numbers)
        self._filters: OrderedDict[int, tuple[AccessFilter, RowFilter | None]] = OrderedDict()

    def owners(self) -> IntVector:
        """Return the entity of each row."""
        return np.concatenate([np.arange(self.n_entities), self._part_entities]).astype(np.int64)

    def entity_rows(self, rows: IntVector) -> IntVector:
        """Return the distinct entities of rows of the collection, in the order of their first rows."""
        owners = rows.copy()
        parts = rows >= self.n_entities
        owners[parts] = self._part_entities[rows[parts] - self.n_entities]
        _, first = np.unique(owners, return_index=True)
        return owners[np.sort(first)]

    def patterns(self) -> NDArray[np.int64]:
        """Return the pattern of each row, as a hash of its labels."""
        return self._pattern_numbers[self._patterns.of[self.owners()]]

    def parts(self) -> NDArray[np.int64]:
        """Return the label set of each row that is a part, as a hash of its labels, −1 of an entity."""
        return np.concatenate([np.full(self.n_entities, -1, np.int64), self._set_numbers[self._part_sets]])

    def filter(self, access: AccessFilter) -> RowFilter | None:
        """Return the filter of a caller who may see some rows, None where it would be too long for Milvus."""
        cached = self._filters.get(id(access))
        if cached is None:  # stored with the filter object, so that its id is not used again
            cached = self._filters[id(access)] = access, self._filter(access)
            if len(self._filters) > _MAX_FILTERS:
                self._filters.popitem(last=False)
        return cached[1]

    def _filter(self, access: AccessFilter) -> RowFilter | None:
        visible, partial = (np.flatnonzero(access.entity_states == state) for state in (VISIBLE, PARTIAL))
        n_patterns = len(access.entity_states)
        terms = []
        if len(visible):
            terms.append(f"({WHOLE_ROWS} and {_listed(PATTERN, visible, self._pattern_numbers)})")
        if len(partial):
            sets = self._set_numbers[access.sets].tolist()
            terms.append(f"({PART} in {sets} and {_listed(PATTERN, partial, self._pattern_numbers)})")
        if max(min(len(rows), n_patterns - len(rows)) for rows in (visible, partial)) > self._max_listed:
            return None
        states = access.entity_states[self._patterns.of]
        parts = access.sets[self._part_sets] & (states[self._part_entities] == PARTIAL)
        return RowFilter(f"({' or '.join(terms)})", int(np.sum(states == VISIBLE) + np.sum(parts)))


def _listed(field: str, chosen: IntVector, numbers: NDArray[np.int64]) -> str:
    """Return the condition that a field has one of some numbers; by the other numbers if they are fewer.

    Rows of other snapshots may have further numbers: they are dropped from the hits.

    Args:
        chosen: positions in `numbers`.
        numbers: all that the rows of the snapshot have.
    """
    if 2 * len(chosen) <= len(numbers):
        return f"{field} in {numbers[chosen].tolist()}"
    others = np.delete(numbers, chosen).tolist()
    return f"{field} not in {others}" if others else f"{field} >= 0"
