"""When a hierarchy stops: cluster sparsity, its change, and the compression of a layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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


StopRule = Literal["compression", "paper"]
PAPER_LAYERS = 50  # maximum of summary layers of Algorithm 1 in the code of its authors
_MIN_SHRINK = 0.2  # a step that shrinks its layer by less is the last


def change_rate(before: float, now: float) -> float:
    """Return |CS_i − CS_{i−1}| / max(CS_{i−1}, 0.01), both clipped to [0, 1].

    >>> change_rate(0.5, 0.25)
    0.5
    """
    low, high = (min(max(value, 0.0), 1.0) for value in (before, now))
    return abs(high - low) / max(low, 0.01)


@dataclass(frozen=True, slots=True)
class StopLimits:
    """Limits of the stop rule.

    Attributes:
        rule: "compression" continues while clusters group entities; "paper" is Algorithm 1, with k ≤ 50 layers.
        min_change_rate: ε of Algorithm 1.
        target_cluster_size: a layer no larger than this is not grouped again.
        max_layers: summary layers at most.
    """

    rule: StopRule = "compression"
    min_change_rate: float = 0.05
    target_cluster_size: int = 20
    max_layers: int = 8


def stop_before_clustering(layer: int, n_entities: int, n_below: int | None, limits: StopLimits) -> str | None:
    """Return the reason to stop before a layer is clustered, or None to continue.

    Args:
        n_below: entities of the layer below, None for layer 0.
    """
    if layer >= limits.max_layers:
        return f"max_layers {limits.max_layers} reached"
    if limits.rule == "paper" and layer >= PAPER_LAYERS:
        return f"{PAPER_LAYERS} layers, the most of Algorithm 1, reached"
    if n_entities < 2:
        return "nothing left to group"
    if limits.rule == "compression":
        if n_entities <= limits.target_cluster_size:
            return "the layer fits one cluster"
        if n_below is not None and n_entities > (1 - _MIN_SHRINK) * n_below:
            return f"the last step shrank the layer by less than {_MIN_SHRINK:.0%}"
    return None


def stop_after_clustering(sparsities: list[float], median_cluster: float, limits: StopLimits) -> str | None:
    """Return the reason to stop before a clustered layer is summarised, or None to continue.

    Args:
        sparsities: CS of this layer and of those below it, lowest layer first.
    """
    if limits.rule == "paper":
        if len(sparsities) > 1 and change_rate(sparsities[-2], sparsities[-1]) <= limits.min_change_rate:
            return f"cluster sparsity changed by no more than {limits.min_change_rate:.0%}"
        return None
    if median_cluster <= 2:
        return "the median cluster holds no more than 2 entities"
    return None
