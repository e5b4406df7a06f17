"""Links between the rows of two tables: list columns of ids as pairs of row numbers, and back."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import distinct, rows_of
from hirag_dist.types import IntVector


@dataclass(frozen=True, slots=True)
class Links:
    """Pairs of rows: `heads` of one table, `tails` of another.

    Attributes:
        n_heads: rows of the heads' table, linked or not.
    """

    heads: IntVector
    tails: IntVector
    n_heads: int

    def swapped(self, n_tails: int) -> Links:
        """Return the same pairs the other way round; `n_tails` are the rows of the tails' table."""
        return Links(self.tails, self.heads, n_tails)


@dataclass(frozen=True, slots=True)
class RowLists:
    """Rows linked to each head: `rows[indptr[i]:indptr[i + 1]]`, ascending and distinct."""

    indptr: IntVector
    rows: IntVector


def links_of(lists: pa.ChunkedArray, order: pa.ChunkedArray) -> Links:
    """Return the pairs of (row, row in `order` of an id in its list); ids that are not there are left out."""
    flat = lists.combine_chunks()
    tails = rows_of(pa.chunked_array([flat.flatten()]), order)
    heads = np.repeat(np.arange(len(flat)), pc.list_value_length(flat).fill_null(0).to_numpy(zero_copy_only=False))
    known = tails >= 0
    return Links(heads[known], tails[known], len(flat))


def invert(links: Links) -> RowLists:
    """Return the tails of each head, each once."""
    width = int(links.tails.max()) + 1 if len(links.tails) else 1
    heads, tails = np.divmod(distinct(links.heads * width + links.tails), width)
    indptr = np.zeros(links.n_heads + 1, dtype=np.int64)
    np.cumsum(np.bincount(heads, minlength=links.n_heads), out=indptr[1:])
    return RowLists(indptr, tails)


def joined(first: Links, second: Links) -> Links:
    """Return the links from the heads of `first` to the tails of `second`, through what lies between."""
    between = invert(second)
    starts, counts = between.indptr[first.tails], np.diff(between.indptr)[first.tails]
    ends = np.cumsum(counts)
    places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
    return Links(np.repeat(first.heads, counts), between.rows[places], first.n_heads)


def inside_links(members: Links, ends: list[IntVector]) -> Links:
    """Return the pairs of (community, relation) where the community holds both endpoints.

    Args:
        members: from communities to entities; an entity may be in many.
        ends: source and target rows of each relation.
    """
    n_relations = len(ends[0])
    homes = members.swapped(int(max((end.max() for end in ends if len(end)), default=0)) + 1)
    homes = _known(homes)
    sources, targets = (
        distinct(pairs.tails * n_relations + pairs.heads)
        for pairs in (joined(Links(np.arange(n_relations), end, n_relations), homes) for end in ends)
    )
    both = np.intersect1d(sources, targets, assume_unique=True)
    communities, relations = np.divmod(both, max(n_relations, 1))
    return Links(communities, relations, members.n_heads)


def _known(links: Links) -> Links:
    """The links whose head is among the first `n_heads` rows."""
    kept = links.heads < links.n_heads
    return Links(links.heads[kept], links.tails[kept], links.n_heads)


def list_column(lists: RowLists, ids: pa.ChunkedArray) -> pa.ListArray:
    """Return the ids of each list's rows, as a column of lists."""
    values = ids.combine_chunks().take(pa.array(lists.rows))
    return pa.ListArray.from_arrays(pa.array(lists.indptr, pa.int32()), values)
