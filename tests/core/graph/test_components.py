"""Connected components: scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from hirag_dist.core.graph.components import component_labels


@pytest.mark.parametrize("n_edges", [0, 40, 90, 400])
def test_components_and_their_numbers_are_scipys(n_edges: int) -> None:
    sources, targets = np.random.default_rng(n_edges).integers(0, 100, (2, n_edges), np.int32)
    matrix = coo_array((np.ones(n_edges), (sources, targets)), shape=(100, 100)).tocsr()
    _, labels = connected_components(matrix, directed=False)
    assert component_labels(sources, targets, 100).tolist() == labels.tolist()
