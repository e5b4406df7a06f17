"""Values of metadata fields by document: the documents that meet a filter expression, and facets of the fields."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.metadata.dates import Period, date_text
from hirag_dist.core.metadata.fields import (
    AllOf,
    And,
    Expression,
    FieldComparison,
    IsMissing,
    Not,
    OneOf,
    Operand,
    Operator,
    Or,
    Prefix,
)
from hirag_dist.types import Facet
from hirag_dist.types.index_info import MetadataField

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
        case AllOf(field, values):
            column = columns[field]
            return cast(
                Flags, np.logical_and.reduce([column.documents(_equal_to_any(column, (value,))) for value in values])
            )
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
