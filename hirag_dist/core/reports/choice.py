"""Choice of the communities whose reports are written with the index: the most prominent ones."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

MIN_ENTITIES = 4  # of a community whose report a model writes


@dataclass(frozen=True, slots=True)
class ReportChoice:
    """Rule that chooses the reports that are written with an index.

    Attributes:
        share: of the communities that take a call, 0 to 1, rounded up.
        min_entities: of a community that takes a call. Reports of smaller ones list their members, and always exist.
    """

    share: float = 1.0
    min_entities: int = MIN_ENTITIES

    def chosen(self, outlines: pa.Table) -> NDArray[np.bool_]:
        """Choose the reports that are written: (n_communities,) bool, in the order of the rows.

        Communities without sub-communities come first, since a question reaches the deepest community of each entity
        that it finds, and larger ones before smaller ones, since they hold more of these entities. Ties go by level,
        then by id.

        Args:
            outlines: OUTLINES of all communities.
        """
        sizes = outlines["n_entities"].to_numpy()
        small: NDArray[np.bool_] = sizes < self.min_entities
        if self.share == 1:
            return np.ones(len(small), np.bool_)
        rows = np.flatnonzero(~small)
        ids = outlines["community_id"].combine_chunks().take(pa.array(rows))
        by_id = np.empty(len(rows), np.int64)
        by_id[pc.sort_indices(ids).to_numpy()] = np.arange(len(rows))
        has_children = pc.list_value_length(outlines["children"]).to_numpy()[rows] > 0
        level = outlines["level"].to_numpy()[rows]
        order = np.lexsort((by_id, level, -sizes[rows], has_children))
        chosen: NDArray[np.bool_] = small.copy()
        chosen[rows[order[: math.ceil(self.share * len(rows))]]] = True
        return chosen


def missing_reports(communities: pa.Table, reported: pa.ChunkedArray, min_entities: int) -> NDArray[np.bool_]:
    """Find the communities that take a call and have neither a report nor a dead letter: (n_communities,) bool.

    Args:
        communities: community_id and n_entities.
        reported: ids of communities with a report or a dead letter.
    """
    known = pc.is_in(communities["community_id"], value_set=reported.combine_chunks()).to_numpy()
    missing: NDArray[np.bool_] = ~known & (communities["n_entities"].to_numpy() >= min_entities)
    return missing
