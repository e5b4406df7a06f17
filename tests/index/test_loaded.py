"""What is derived from a snapshot when it is loaded."""

import random

import numpy as np
import pytest

from hirag_dist.index.loaded import _parallel


@pytest.mark.parametrize(("n_entities", "n_relations"), [(1, 0), (2, 1), (4, 30), (40, 60), (3000, 500)])
def test_pairs_with_more_than_one_relation(n_entities: int, n_relations: int) -> None:
    draw = random.Random(n_relations)
    ends = [(draw.randrange(n_entities), draw.randrange(n_entities)) for _ in range(n_relations)]
    slow: dict[tuple[int, int], list[int]] = {}
    for row, (source, target) in enumerate(ends):
        slow.setdefault((min(source, target), max(source, target)), []).append(row)
    expected = {pair: rows for pair, rows in slow.items() if len(rows) > 1}
    assert _parallel(np.array(ends, np.int64).reshape(-1, 2)) == expected
