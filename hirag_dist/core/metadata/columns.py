"""Values of metadata fields by document: the documents that meet a filter, what follows from them, and facets.

A label pattern stands for many rows; a filter may distinguish every document, so the state of each row is computed from
its chunks, in compiled code. An extracted entity is visible if one of its mentions is. What is known as a whole only
(summary entities, reports, entities of imported graphs) is visible if all of its sources are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, PARTIAL, VISIBLE
from hirag_dist.core.arrays import compiled_apart, compiled_inside
from hirag_dist.core.metadata.fields import (
    And,
    Expression,
    FieldComparison,
    IsMissing,
    Not,
    OneOf,
    Operand,
    Operator,
    Or,
    Period,
    Prefix,
    date_text,
)
from hirag_dist.types import Facet
from hirag_dist.types.index_info import MetadataField

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
    partial = np.zeros(n_entities, np.bool_)
    for row in range(n_entities):
        if entities[row] == PARTIAL:
            partial[row] = True
            entities[row] = by_label[row]  # parts of entities have vectors by label, not by filter
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


@compiled_inside
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


@compiled_inside
def _label_states(patterns: NDArray[np.int32], states: NDArray[np.uint8], n_rows: int) -> Any:
    found = np.full(n_rows, VISIBLE, np.uint8)
    for row in range(len(patterns)):
        found[row] = states[patterns[row]]
    return found


@compiled_inside
def _are_all(passing: float, total: float) -> Any:
    return passing > 0 and passing >= total


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class FieldColumn:
    """The values of one field: CSR over documents.

    Attributes:
        indptr: (n_documents + 1,) int64; a document without a value has none.
        values: a number for each value: the position of a string in `strings`, a float, a date in microseconds, 0 or 1.
        strings: the distinct strings, ascending; empty for other types.
    """

    field: MetadataField
    indptr: NDArray[np.int64]
    values: NDArray[Any]
    strings: Sequence[str] = ()

    @property
    def present(self) -> Flags:
        """(n_documents,) whether a document has a value."""
        return np.diff(self.indptr) > 0

    def documents(self, flags: Flags) -> Flags:
        """Return flags of the documents that have a flagged value: (n_documents,).

        Args:
            flags: by value.
        """
        if len(self.values) == 0:
            return np.zeros(len(self.indptr) - 1, np.bool_)
        total = np.concatenate([[0], np.cumsum(flags)])
        found: Flags = total[self.indptr[1:]] > total[self.indptr[:-1]]
        return found


def matching_documents(expression: Expression, columns: Mapping[str, FieldColumn]) -> Flags:
    """Return flags of the documents that meet an expression: (n_documents,).

    Args:
        columns: by the name of the field, at least those that the expression names.
    """
    match expression:
        case Not(term):
            return ~matching_documents(term, columns)
        case And(terms):
            return cast(Flags, np.logical_and.reduce([matching_documents(term, columns) for term in terms]))
        case Or(terms):
            return cast(Flags, np.logical_or.reduce([matching_documents(term, columns) for term in terms]))
        case IsMissing(field):
            return ~columns[field].present
        case FieldComparison(field, operator, value):
            column = columns[field]
            return column.documents(_compared(column, operator, value))
        case OneOf(field, values):
            column = columns[field]
            return column.documents(_equal_to_any(column, values))
        case Prefix(field, text):
            column = columns[field]
            first = bisect_left(column.strings, text)
            end = bisect_left(
                column.strings,
                True,
                first,
                key=lambda found: not found.startswith(text),  # those with it are together
            )
            return column.documents((column.values >= first) & (column.values < end))


def _compared(column: FieldColumn, operator: Operator, value: Operand) -> Flags:
    """Return flags of the values for which the comparison holds. A period is compared as a whole."""
    first, end, found = _bounds(column, value)
    match operator:
        case "=":
            return (column.values >= first) & (column.values < end) if found else np.zeros(len(column.values), np.bool_)
        case "<":
            return cast(Flags, column.values < first)
        case "<=":
            return cast(Flags, column.values < end)
        case ">":
            return cast(Flags, column.values >= end)
        case ">=":
            return cast(Flags, column.values >= first)


def _bounds(column: FieldColumn, value: Operand) -> tuple[Any, Any, bool]:
    """Return (first, end): the values from `first` up to `end` are equal to an operand; whether there may be any."""
    if isinstance(value, Period):
        return value.start, value.end, True
    if isinstance(value, str):
        first, end = bisect_left(column.strings, value), bisect_right(column.strings, value)
        return first, end, end > first
    if isinstance(value, bool):
        return int(value), int(value) + 1, True
    return value, np.nextafter(value, np.inf), True


def _equal_to_any(column: FieldColumn, values: Sequence[Operand]) -> Flags:
    if column.field.type == "date":
        return cast(Flags, np.logical_or.reduce([_compared(column, "=", value) for value in values]))
    if column.field.type == "string":
        numbers = [bounds[0] for bounds in (_bounds(column, value) for value in values) if bounds[2]]
    else:
        numbers = [float(cast(float, value)) for value in values]
    return np.isin(column.values, np.array(numbers, column.values.dtype))


MAX_VALUES = 20


def facets(columns: Iterable[FieldColumn], documents: NDArray[np.bool_] | None = None) -> tuple[Facet, ...]:
    """Return a facet of each field.

    Args:
        documents: (n_documents,) those that are counted; None: all.
    """
    return tuple(_facet(column, documents) for column in columns)


def _facet(column: FieldColumn, documents: NDArray[np.bool_] | None) -> Facet:
    field, values, present = column.field, column.values, column.present
    if documents is not None:
        values = values[np.repeat(documents, np.diff(column.indptr))]
        present = present & documents
    n_documents = int(np.count_nonzero(present))
    if field.type in ("date", "number"):
        if not len(values):
            return Facet(field.name, field.type, field.list)
        low, high = values.min().item(), values.max().item()
        if field.type == "date":
            low, high = date_text(low), date_text(high)
        return Facet(field.name, field.type, field.list, n_documents, low, high)
    found, counts = np.unique(values, return_counts=True)
    best = np.lexsort((found, -counts))[:MAX_VALUES]  # of equal counts the first in their order
    names = [bool(value) if field.type == "bool" else column.strings[value] for value in found[best].tolist()]
    pairs = tuple(zip(names, counts[best].tolist(), strict=True))
    return Facet(field.name, field.type, field.list, n_documents, distinct=len(found), values=pairs)
