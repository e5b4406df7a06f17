"""Facets: what values the metadata fields of some documents have."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.metadata.columns import FieldColumn
from hirag_dist.core.metadata.dates import date_text
from hirag_dist.types import Facet

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
