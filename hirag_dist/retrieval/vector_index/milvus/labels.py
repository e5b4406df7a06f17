"""Access labels in a Milvus collection: its fields for them, and the filters that hide rows from a caller.

In addition to its layer a row has its pattern (`core.access.labels`) and, for a part of an entity with several label
sets, the label set. Where labels name tenants, the tenant of a row's sources is the collection's partition key.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.labels import PARTIAL, VISIBLE, LabelPatterns
from hirag_dist.storage.access.label_files import map_labels, read_label_sets
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter, FloatMatrix, IntVector

PATTERN = "pattern"
PART = "part"  # label set of a part, −1 for an entity
TENANT = "tenant"
WHOLE_ROWS = f"{PART} == -1"
SEVERAL, NO_TENANT = "*", ""  # of rows from documents of several tenants, or of none
TENANT_BYTES = 128
_MAX_LISTED = 4096
_MAX_FILTERS = 64  # cached


class RowFilter(NamedTuple):
    """A filter expression of Milvus, and the number of rows that pass it."""

    text: str
    n_rows: int


class LabelledRows:
    """Rows of the collection of a snapshot with labels: its entities, followed by the parts of entities."""

    def __init__(self, snapshot: Snapshot, tenant_prefix: str | None = None, max_listed: int = _MAX_LISTED) -> None:
        """Map the label files.

        Args:
            snapshot: with a document that carries labels.
            tenant_prefix: prefix of the labels that name tenants; None: there are no tenants.
            max_listed: patterns or tenants in one filter.
        """
        files = map_labels(snapshot)
        self._patterns = files.entities
        self.n_entities = len(files.entities.of)
        self.part_vectors: FloatMatrix = files.part_vectors
        self._part_entities = files.part_entities
        self._part_sets = files.part_sets
        self._max_listed = max_listed
        self._tenants: list[str] | None = None
        if tenant_prefix is not None:
            self._tenants = [_tenant(labels, tenant_prefix) for labels in read_label_sets(snapshot)]
        self._filters: OrderedDict[int, tuple[AccessFilter, RowFilter | None]] = OrderedDict()

    @property
    def has_tenants(self) -> bool:
        """True where rows have tenants."""
        return self._tenants is not None

    @property
    def key(self) -> str:
        """Key of the pattern numbers and tenants of the collection: 8 hex digits."""
        digest = hashlib.sha256(f"{self.n_entities}".encode())
        patterns = self._patterns
        for numbers in (patterns.of, patterns.indptr, patterns.sets, self._part_entities, self._part_sets):
            digest.update(np.ascontiguousarray(numbers).data)
        digest.update(json.dumps(self._tenants).encode())
        return digest.hexdigest()[:8]

    def entity_rows(self, rows: IntVector) -> IntVector:
        """Return the distinct entities of rows of the collection, in the order of their first rows."""
        owners = rows.copy()
        parts = rows >= self.n_entities
        owners[parts] = self._part_entities[rows[parts] - self.n_entities]
        _, first = np.unique(owners, return_index=True)
        return owners[np.sort(first)]

    def patterns(self) -> list[int]:
        """Return the pattern of each row."""
        of = self._patterns.of
        return [*of.tolist(), *of[self._part_entities].tolist()]

    def parts(self) -> list[int]:
        """Return the label set of each row that is a part, −1 of an entity."""
        return [*[-1] * self.n_entities, *self._part_sets.tolist()]

    def tenants(self) -> list[str] | None:
        """Return the tenant of each row, None where there are none."""
        if self._tenants is None:
            return None
        tenants = pattern_tenants(self._patterns, self._tenants)
        return [tenants[pattern] for pattern in self.patterns()]

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
            listed = _listed(PATTERN, visible, n_patterns)
            terms.append(f"({WHOLE_ROWS} and {listed})")
        if len(partial):
            listed = _listed(PATTERN, partial, n_patterns)
            sets = np.flatnonzero(access.sets)
            terms.append(f"({_listed(PART, sets, 2 * len(sets) + 1)} and {listed})")
        if max(min(len(rows), n_patterns - len(rows)) for rows in (visible, partial)) > self._max_listed:
            return None
        text = f"({' or '.join(terms)})"
        if self._tenants is not None:
            tenants = sorted({SEVERAL, *(self._tenants[at] for at in np.flatnonzero(access.sets).tolist())})
            if len(tenants) <= self._max_listed:
                text = f"{TENANT} in {json.dumps(tenants, ensure_ascii=False)} and {text}"
        states = access.entity_states[self._patterns.of]
        parts = access.sets[self._part_sets] & (states[self._part_entities] == PARTIAL)
        return RowFilter(text, int(np.sum(states == VISIBLE) + np.sum(parts)))


def pattern_tenants(patterns: LabelPatterns, tenants: Sequence[str]) -> list[str]:
    """Return the tenant of each pattern: that of all its label sets, else SEVERAL or NO_TENANT.

    Args:
        patterns: of rows.
        tenants: by label set; the unknown label set, which follows them, has none.
    """
    known = [*tenants, NO_TENANT]
    found = []
    for first, last in zip(patterns.indptr[:-1].tolist(), patterns.indptr[1:].tolist(), strict=True):
        own = {known[at] for at in patterns.sets[first:last].tolist()}
        found.append(own.pop() if len(own) == 1 else SEVERAL if own else NO_TENANT)
    return found


def _tenant(labels: Sequence[str], prefix: str) -> str:
    """Return the tenant that labels name; the hash of a long name, for Milvus's limit of bytes."""
    named = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    if len(named) != 1:
        return SEVERAL if named else NO_TENANT
    name = f"={named.pop()}"  # never equal to SEVERAL or NO_TENANT
    if len(name.encode()) > TENANT_BYTES:
        return hashlib.sha256(name.encode()).hexdigest()
    return name


def _listed(field: str, values: NDArray[Any], n_values: int) -> str:
    """Return the condition that a field has one of some values of 0 … n − 1; by the other values if they are fewer."""
    if 2 * len(values) <= n_values:
        return f"{field} in {values.tolist()}"
    others = np.setdiff1d(np.arange(n_values), values)
    return f"{field} not in {others.tolist()}" if len(others) else f"{field} >= 0"
