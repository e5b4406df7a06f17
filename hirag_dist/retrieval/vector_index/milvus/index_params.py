"""Choice of the index of a collection and of its search parameters, for Lite and servers alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

LITE_FLAT_ROWS = 2_000  # up to so many rows a scan costs no more than a graph search; Lite copies all vectors for it
SERVER_FLAT_ROWS = 20_000
_MIN_EF = 512  # costs a millisecond more than 64, and finds 999 of 1,000 where that finds 930


@dataclass(frozen=True, slots=True)
class IndexChoice:
    """An index to build.

    Attributes:
        kind: flat or hnsw.
        build: parameters, by Milvus's names.
    """

    kind: str
    build: Mapping[str, int]


def choose_index(n_rows: int, flat_rows: int) -> IndexChoice:
    """Return the index for a collection of so many rows: flat up to a number of rows, hnsw above."""
    return IndexChoice("flat", {}) if n_rows <= flat_rows else IndexChoice("hnsw", {"M": 16, "efConstruction": 200})


def search_params(kind: str, limit: int, n_rows: int, admitted: float = 1.0) -> dict[str, int]:
    """Return the parameters of a search.

    Args:
        kind: kind of the index; any other than hnsw gets Milvus's own defaults.
        limit: of rows wanted.
        n_rows: of the collection.
        admitted: share of the rows that the filter lets through, for Milvus Lite, and for filters that Milvus does not
            know. Lite walks its graph as if there were no filter and drops what it may not give, so a narrow filter
            needs a wide search; a server searches the few rows of its own filters directly.
    """
    if kind != "hnsw":
        return {}
    usual = min(_MIN_EF, n_rows)
    wide = min(math.ceil(usual / max(admitted, 1 / max(n_rows, 1))), n_rows)
    return {"ef": max(usual, limit, wide)}
