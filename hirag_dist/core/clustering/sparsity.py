"""Cluster sparsity of a layer (paper Eq. 17)."""

from __future__ import annotations

import numpy as np

from hirag_dist.types import IntVector


def cluster_sparsity(sizes: IntVector, n_entities: int) -> float:
    """Return the cluster sparsity CS of a layer: 1.0 when every cluster is a singleton.

    Paper: Eq. 17. Algorithm 1 numbers the same value one higher.

    Args:
        sizes: (n_clusters,) entities in each cluster; clusters may overlap (Eq. 8).
        n_entities: |L_i|, the entities that were clustered.

    Returns:
        A ratio of pairs, at most 1.0; negative when clusters overlap heavily.

    Raises:
        ValueError: n_entities < 1.

    >>> cluster_sparsity(np.array([2, 2]), n_entities=4)
    0.6666666666666667
    """
    if n_entities < 1:
        raise ValueError(f"n_entities must be at least 1, got {n_entities}")
    if n_entities == 1:
        return 1.0  # Eq. 17 is 0/0: nothing is left to group
    pairs = int(np.sum(sizes * (sizes - 1)))
    return 1.0 - pairs / (n_entities * (n_entities - 1))
