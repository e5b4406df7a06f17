"""Row numbers of ids against a dictionary, for ids that are hashes and for others, few and many."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.core.id_rows import IdRows
from hirag_dist.core.text.ids import content_id

MANY = [content_id("entity", str(number)) for number in range(20_000)]


def chunked(ids: list[str | None], *bounds: int) -> pa.ChunkedArray:
    """Return ids as chunks that are slices, so that none begins where its buffers do."""
    parts = zip([0, *bounds], [*bounds, len(ids)], strict=True)
    return pa.chunked_array([pa.array(["before", *ids[first:end]], pa.string())[1:] for first, end in parts])


@pytest.mark.parametrize(
    ("order", "asked"),
    [
        (MANY, [*reversed(MANY), content_id("unknown"), "", "short"]),
        (MANY + MANY, MANY[:9]),
        (MANY, [*MANY, None]),
        ([*MANY, "short"], ["short", MANY[7], "shorter"]),
        ([*MANY, None], MANY[:9]),
        ([f"{number:024}" for number in range(20_000)], [f"{number:024}" for number in range(19_990, 20_010)]),
        (MANY[:5], [MANY[4], MANY[5]]),
        ([], MANY[:2]),
        (MANY, []),
    ],
    ids=["hashes", "equal", "null asked", "one short", "one null", "numbers", "few", "none", "nothing asked"],
)
@pytest.mark.parametrize("bounds", [(), (3, 3)], ids=["one chunk", "chunks"])
def test_the_first_row_of_each_id(order: list[str | None], asked: list[str | None], bounds: tuple[int, ...]) -> None:
    rows = {name: len(order) - 1 - row for row, name in enumerate(reversed(order))}
    known = IdRows(chunked(order, *bounds))
    expected = [rows.get(name, -1) for name in asked]
    found = known.rows(chunked(asked, *bounds))
    assert found.dtype == np.int64
    assert found.tolist() == expected
    assert known.rows(pa.array(asked, pa.string())).tolist() == expected  # a second look-up, of an array
