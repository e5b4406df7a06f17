"""Choice of the communities whose reports are written with the index: those that questions reach most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.types import IntVector

Policy = Literal["all", "top", "on_demand"]
REPORT_HITS = pa.schema(
    [pa.field("community_id", pa.string(), nullable=False), pa.field("hits", pa.int64(), nullable=False)]
)


@dataclass(frozen=True, slots=True)
class ReportChoice:
    """Rule that chooses the reports that are written with an index.

    Attributes:
        policy: all; top, a share of the communities; or on_demand, none.
        share: of the communities that take a call, rounded up.
        min_entities: of a community that takes a call. Reports of smaller ones list their members, and always exist.
    """

    policy: Policy = "all"
    share: float = 1.0
    min_entities: int = 1

    def chosen(self, outlines: pa.Table, hits: Mapping[str, int]) -> NDArray[np.bool_]:
        """Choose the reports that are written: (n_communities,) bool, in the order of the rows.

        Communities without sub-communities come first, since a question reaches the deepest community of each entity
        that it finds, and larger ones before smaller ones, since they hold more of these entities. Communities with
        hits come before all others. Ties go by level, then by id.

        Args:
            outlines: OUTLINES of all communities.
            hits: of past questions, by community id.
        """
        sizes = outlines["n_entities"].to_numpy()
        small: NDArray[np.bool_] = sizes < self.min_entities
        if self.policy != "top":
            return np.ones(len(small), np.bool_) if self.policy == "all" else small
        rows = np.flatnonzero(~small)
        ids = outlines["community_id"].combine_chunks().take(pa.array(rows))
        by_id = np.empty(len(rows), np.int64)
        by_id[pc.sort_indices(ids).to_numpy()] = np.arange(len(rows))
        has_children = pc.list_value_length(outlines["children"]).to_numpy()[rows] > 0
        level = outlines["level"].to_numpy()[rows]
        order = np.lexsort((by_id, level, -sizes[rows], has_children, -_hits_of(ids, hits)))
        chosen: NDArray[np.bool_] = small.copy()
        chosen[rows[order[: math.ceil(self.share * len(rows))]]] = True
        return chosen


def _hits_of(ids: pa.Array, hits: Mapping[str, int]) -> IntVector:
    found = np.zeros(len(ids), np.int64)
    if hits:
        at = rows_of(pa.chunked_array([ids]), pa.chunked_array([pa.array(list(hits), pa.string())]))
        found[at >= 0] = np.fromiter(hits.values(), np.int64, len(hits))[at[at >= 0]]
    return found


def missing_reports(communities: pa.Table, reported: pa.ChunkedArray, min_entities: int) -> NDArray[np.bool_]:
    """Find the communities that take a call and have neither a report nor a dead letter: (n_communities,) bool.

    Args:
        communities: community_id and n_entities.
        reported: ids of communities with a report or a dead letter.
    """
    known = pc.is_in(communities["community_id"], value_set=reported.combine_chunks()).to_numpy()
    missing: NDArray[np.bool_] = ~known & (communities["n_entities"].to_numpy() >= min_entities)
    return missing
