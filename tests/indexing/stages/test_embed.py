"""Vectors out of tables: in pieces, in another order, some missing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.indexing.stages.embed import vector_matrix, vector_rows, vector_table

VECTORS = np.arange(12, dtype=np.float32).reshape(6, 2)


def table(pieces: tuple[int, ...]) -> pa.Table:
    whole = vector_table(pa.chunked_array([[str(row) for row in range(6)]]), VECTORS)
    bounds = [0, *np.cumsum(pieces).tolist()]
    return pa.concat_tables(whole.slice(first, stop - first) for first, stop in pairwise(bounds))


@pytest.mark.parametrize("rows", [[5, 3, 0, 4], [2, -1, 2]])
def test_rows_of_vectors(rows: list[int]) -> None:
    pieces = (1, 0, 3, 2)
    found = vector_rows(table(pieces), 2, np.array(rows, np.int64))
    assert found.tolist() == [VECTORS[row].tolist() if row >= 0 else [0.0, 0.0] for row in rows]
    assert vector_matrix(table(pieces), 2).tolist() == VECTORS.tolist()
