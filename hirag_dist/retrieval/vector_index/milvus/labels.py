"""What a collection holds so that Milvus leaves out what a caller may not see, and the filters that say so.

Beside its layer a row has its pattern (`core.access.labels`) and, where it is a part of an entity that several label
sets speak of, the label set. Where tenants are told apart by labels, the tenant of what a row was made from is the
collection's partition key.
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
SEVERAL, NOBODYS = "*", ""  # of what was made from documents of several tenants, or of none
TENANT_BYTES = 128
_MAX_LISTED = 4096
_KEPT = 64  # filters


class RowFilter(NamedTuple):
    """What Milvus filters by, and how many rows that lets through."""

    text: str
    n_rows: int


class LabelledRows:
    """The rows of a snapshot's collection where documents carry labels: its entities, and behind them the parts."""

    def __init__(self, snapshot: Snapshot, tenant_prefix: str | None = None, most_listed: int = _MAX_LISTED) -> None:
        """Map the files of labels.

        Args:
            snapshot: of which some document carries labels.
            tenant_prefix: a label that begins so names the tenant of its document; None: there are no tenants.
            most_listed: patterns or tenants in one filter.
        """
        files = map_labels(snapshot)
        self._patterns = files.entities
        self.n_entities = len(files.entities.of)
        self.part_vectors: FloatMatrix = files.part_vectors
        self._part_entities = files.part_entities
        self._part_sets = files.part_sets
        self._most_listed = most_listed
        self._tenants: list[str] | None = None
        if tenant_prefix is not None:
            self._tenants = [_tenant(labels, tenant_prefix) for labels in read_label_sets(snapshot)]
        self._filters: OrderedDict[int, tuple[AccessFilter, RowFilter | None]] = OrderedDict()

    @property
    def has_tenants(self) -> bool:
        """Whether rows have tenants."""
        return self._tenants is not None

    @property
    def key(self) -> str:
        """What tells collections of other numbers, or with other tenants, apart: 8 hex digits."""
        digest = hashlib.sha256(f"{self.n_entities}".encode())
        patterns = self._patterns
        for numbers in (patterns.of, patterns.indptr, patterns.sets, self._part_entities, self._part_sets):
            digest.update(np.ascontiguousarray(numbers).data)
        digest.update(json.dumps(self._tenants).encode())
        return digest.hexdigest()[:8]

    def entity_rows(self, rows: IntVector) -> IntVector:
        """Return the entities that rows of the collection speak of, each once, in the order of their first rows."""
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
        own = pattern_tenants(self._patterns, self._tenants)
        return [own[pattern] for pattern in self.patterns()]

    def filter(self, access: AccessFilter) -> RowFilter | None:
        """Return the filter of a caller who may see something, None where it would be too long for Milvus."""
        kept = self._filters.get(id(access))
        if kept is None:  # kept with what its key is the id of, which so stays its own
            kept = self._filters[id(access)] = access, self._filter(access)
            if len(self._filters) > _KEPT:
                self._filters.popitem(last=False)
        return kept[1]

    def _filter(self, access: AccessFilter) -> RowFilter | None:
        whole, mixed = (np.flatnonzero(access.entity_states == state) for state in (VISIBLE, PARTIAL))
        n_patterns = len(access.entity_states)
        seen = []
        if len(whole):
            listed = _listed(PATTERN, whole, n_patterns)
            seen.append(f"({WHOLE_ROWS} and {listed})")
        if len(mixed):
            listed = _listed(PATTERN, mixed, n_patterns)
            sets = np.flatnonzero(access.sets)
            seen.append(f"({_listed(PART, sets, 2 * len(sets) + 1)} and {listed})")
        if max(min(len(found), n_patterns - len(found)) for found in (whole, mixed)) > self._most_listed:
            return None
        text = f"({' or '.join(seen)})"
        if self._tenants is not None:
            own = sorted({SEVERAL, *(self._tenants[at] for at in np.flatnonzero(access.sets).tolist())})
            if len(own) <= self._most_listed:
                text = f"{TENANT} in {json.dumps(own, ensure_ascii=False)} and {text}"
        states = access.entity_states[self._patterns.of]
        parts = access.sets[self._part_sets] & (states[self._part_entities] == PARTIAL)
        return RowFilter(text, int(np.sum(states == VISIBLE) + np.sum(parts)))


def pattern_tenants(patterns: LabelPatterns, tenants: Sequence[str]) -> list[str]:
    """Return the tenant of each pattern, where all of its label sets have the same one.

    Args:
        patterns: of rows.
        tenants: by label set; of the unknown one, behind them, it is nobody's.
    """
    known = [*tenants, NOBODYS]
    found = []
    for first, last in zip(patterns.indptr[:-1].tolist(), patterns.indptr[1:].tolist(), strict=True):
        own = {known[at] for at in patterns.sets[first:last].tolist()}
        found.append(own.pop() if len(own) == 1 else SEVERAL if own else NOBODYS)
    return found


def _tenant(labels: Sequence[str], prefix: str) -> str:
    """Return the tenant that labels name; a long name by its hash, as Milvus has to keep it in few bytes."""
    named = {label.removeprefix(prefix) for label in labels if label.startswith(prefix)}
    if len(named) != 1:
        return SEVERAL if named else NOBODYS
    name = f"={named.pop()}"  # so that none is called as those that are told apart
    if len(name.encode()) > TENANT_BYTES:
        return hashlib.sha256(name.encode()).hexdigest()
    return name


def _listed(field: str, values: NDArray[Any], n_values: int) -> str:
    """Return that a field has one of some values of 0 … n − 1; by the others, where these are fewer."""
    if 2 * len(values) <= n_values:
        return f"{field} in {values.tolist()}"
    others = np.setdiff1d(np.arange(n_values), values)
    return f"{field} not in {others.tolist()}" if len(others) else f"{field} >= 0"
