"""Relations between numbered entities as a table."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from hirag_dist.schemas import RELATIONS
from tests.table_rows import filled_table


def relation_table(n_entities: int, relations: Sequence[tuple[int, int, float]]) -> tuple[pa.ChunkedArray, pa.Table]:
    """Return the ids of entities, in order, and RELATIONS between them as (source, target, weight)."""
    ids = [f"e{at:06d}" for at in range(n_entities)]
    rows = (
        {"relation_id": f"r{at:06d}", "source_id": ids[source], "target_id": ids[target], "weight": weight}
        for at, (source, target, weight) in enumerate(relations)
    )
    return pa.chunked_array([ids], pa.string()), filled_table(RELATIONS, rows)
