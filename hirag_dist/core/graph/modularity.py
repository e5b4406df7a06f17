"""Modularity of a partition of a weighted graph (Newman and Girvan, 2004), with a resolution."""

from __future__ import annotations

import numpy as np

from hirag_dist.core.graph.csr import by_lowest_node, heads
from hirag_dist.types import CsrGraph, IntVector


def modularity(graph: CsrGraph, labels: IntVector, resolution: float = 1.0) -> float:
    """Return Q = Σ_c [w_c / W − γ (d_c / W)²] over communities c.

    W is the weight of all entries of the graph (each edge both ways), w_c of those inside c, and d_c of those that
    start in c. Equal partitions give equal bits, whatever their labels are.

    Args:
        graph: undirected, each edge both ways, no loops; weights that are not positive count as none.
        labels: (n_nodes,) community of each node; a node labelled −1 is one by itself.
        resolution: γ.

    Returns:
        At most 1.0; 0.0 for a graph without edges.
    """
    weights = np.maximum(graph.weights, 0).astype(np.float64)
    whole = float(weights.sum())
    if not whole:
        return 0.0
    alone = labels < 0
    known = labels.astype(np.int64)
    known[alone] = int(labels.max(initial=-1)) + 1 + np.arange(int(alone.sum()))
    known = by_lowest_node(known)
    start = known[heads(graph)]
    inside = float(weights[start == known[graph.indices]].sum())
    degrees = np.bincount(start, weights, minlength=int(known.max()) + 1) / whole
    return inside / whole - resolution * float(np.sum(degrees * degrees))
