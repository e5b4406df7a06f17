"""Connected components."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import IntVector


def component_labels(sources: NDArray[np.integer], targets: NDArray[np.integer], n_nodes: int) -> IntVector:
    """Return (n_nodes,) connected components of an undirected graph, numbered by their lowest node.

    Args:
        sources: (n_edges,) one end of each edge, in one direction or both.
        targets: (n_edges,) the other.
        n_nodes: of the graph.

    >>> component_labels(np.array([3, 1]), np.array([0, 2]), 5).tolist()
    [0, 1, 1, 0, 2]
    """
    labels: IntVector = _component_labels(sources.astype(np.int64), targets.astype(np.int64), n_nodes)
    return labels


@compiled
def _component_labels(sources: IntVector, targets: IntVector, n_nodes: int) -> Any:
    parents = np.arange(n_nodes)  # never above the node itself
    for edge in range(len(sources)):
        one, other = sources[edge], targets[edge]
        while parents[one] != one:
            parents[one] = parents[parents[one]]  # path halving
            one = parents[one]
        while parents[other] != other:
            parents[other] = parents[parents[other]]
            other = parents[other]
        parents[max(one, other)] = min(one, other)
    labels = np.empty(n_nodes, np.int64)
    found = 0
    for node in range(n_nodes):
        if parents[node] == node:
            labels[node] = found
            found += 1
        else:
            labels[node] = labels[parents[node]]  # lower nodes have theirs already
    return labels
