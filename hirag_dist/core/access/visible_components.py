"""Connected components of the graph that a caller may see: no path joins two of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.labels import HIDDEN
from hirag_dist.core.numba_jit import compiled, compiled_apart
from hirag_dist.types import AccessFilter, CsrGraph


def visible_components(graph: CsrGraph, access: AccessFilter) -> NDArray[np.int32]:
    """Return the connected component of each node, named by its lowest row; a hidden node is one by itself.

    Returns:
        (n_nodes,), read-only, as the mapped one of the whole graph is: kernels are compiled for one type.
    """
    components: NDArray[np.int32] = _components(graph.indptr, graph.indices, graph.relation_rows, access)
    components.flags.writeable = False
    return components


@compiled_apart
def _components(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], relation_rows: NDArray[np.int32], access: AccessFilter
) -> Any:
    parents = np.arange(len(indptr) - 1).astype(np.int32)  # never above the node itself
    for node in range(len(parents)):
        if access.entity_states[access.entity_patterns[node]] == HIDDEN:
            continue
        for entry in range(indptr[node], indptr[node + 1]):
            neighbour = indices[entry]
            if (
                neighbour < node  # each edge has two entries
                and access.entity_states[access.entity_patterns[neighbour]] != HIDDEN
                and access.relation_states[access.relation_patterns[relation_rows[entry]]] != HIDDEN
            ):
                one, other = _root(parents, node), _root(parents, neighbour)
                parents[max(one, other)] = min(one, other)
    for node in range(len(parents)):
        parents[node] = parents[parents[node]]  # lower rows have their root already
    return parents


@compiled
def _root(parents: NDArray[np.int32], node: int) -> Any:
    while parents[node] != node:
        parents[node] = parents[parents[node]]  # path halving
        node = parents[node]
    return node
