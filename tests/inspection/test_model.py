"""Graph measures of a case worked by hand; `test_summary` compares larger ones with networkx."""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.inspection.model import clustering
from hirag_dist.types import CsrGraph


def test_a_triangle_with_a_tail_has_three_closed_of_five_triples() -> None:
    # 0-1-2 a triangle, 3 hangs on 2, 4 is alone. Triples: one around 0, one around 1, three around 2; three are closed.
    neighbours = np.array([1, 2, 0, 2, 0, 1, 3, 2], np.int32)
    graph = CsrGraph(np.array([0, 2, 4, 7, 8, 8]), neighbours, np.ones(8, np.float32), np.zeros(8, np.int32))
    found = clustering(graph)
    assert found.transitivity == pytest.approx(3 / 5)
    assert found.average_local == pytest.approx((1 + 1 + 1 / 3) / 5)
