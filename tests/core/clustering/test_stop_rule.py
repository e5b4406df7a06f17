"""Eq. 17 and Algorithm 1 worked by hand, and the stop rules at their borders."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hirag_dist.core.clustering.stop_rule import (
    StopLimits,
    change_rate,
    cluster_sparsity,
    stop_after_clustering,
    stop_before_clustering,
)


@pytest.mark.parametrize(
    ("sizes", "n_entities", "expected"),
    [
        ([1, 1, 1, 1], 4, 1.0),  # the paper's worst case
        ([4], 4, 0.0),
        ([2, 2], 4, 1 - 4 / 12),
        ([3, 1], 4, 1 - 6 / 12),
        ([3, 2], 4, 1 - 8 / 12),  # one entity in both
        ([4, 4], 4, -1.0),
        ([5, 5, 10], 20, 1 - (20 + 20 + 90) / 380),
        ([1], 1, 1.0),
        ([], 3, 1.0),
    ],
)
def test_cluster_sparsity_by_hand(sizes: list[int], n_entities: int, expected: float) -> None:
    assert cluster_sparsity(np.array(sizes, np.int64), n_entities) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.5, 0.25, 0.5),
        (0.8, 0.9, 0.125),
        (0.9, 0.9, 0.0),
        (0.0, 0.5, 50.0),  # the denominator is at least 0.01
        (0.005, 0.0, 0.5),
        (-0.7, 1.2, 100.0),  # clipped to 0 and 1
    ],
)
def test_change_rate_by_hand(before: float, now: float, expected: float) -> None:
    assert change_rate(before, now) == pytest.approx(expected)


PAPER = StopLimits(rule="paper", min_change_rate=0.0625, max_layers=100)  # exact in binary, as are the sparsities here
COMPRESSION = StopLimits(target_cluster_size=20)
PAIRS = StopLimits(target_cluster_size=2)


@pytest.mark.parametrize(
    ("limits", "layer", "now", "below", "reason"),
    [
        (PAPER, 3, 5, 5, None),  # no other reason than the layer cap and the size
        (PAPER, 3, 1, 9, "nothing left to group"),
        (replace(PAPER, max_layers=8), 8, 50, 90, "max_layers 8 reached"),
        (PAPER, 49, 50, 90, None),
        (PAPER, 50, 50, 90, "50 layers, the most of Algorithm 1, reached"),
        (replace(PAPER, rule="compression"), 50, 50, 90, None),
        (COMPRESSION, 1, 21, 100, None),
        (COMPRESSION, 1, 20, 100, "the layer fits one cluster"),
        (COMPRESSION, 0, 20, None, "the layer fits one cluster"),
        (COMPRESSION, 0, 21, None, None),
        (PAIRS, 1, 40, 50, None),  # a fifth less than below, or more
        (PAIRS, 1, 41, 50, "less than 20%"),
        (StopLimits(max_layers=0), 0, 1000, None, "max_layers 0 reached"),
    ],
)
def test_stops_before_clustering(
    limits: StopLimits, layer: int, now: int, below: int | None, reason: str | None
) -> None:
    found = stop_before_clustering(layer, now, below, limits)
    assert found is None if reason is None else reason in str(found)


@pytest.mark.parametrize(
    ("limits", "sparsities", "size", "stops"),
    [
        (PAPER, [0.5, 0.53125], 9, True),  # at its rate and not above
        (PAPER, [0.5, 0.46875], 9, True),
        (PAPER, [0.5, 0.5313], 9, False),
        (PAPER, [0.5], 1, False),  # the first layer has nothing to be compared with
        (PAPER, [0.5, 0.1, 0.1], 9, True),  # only the last two count
        (PAPER, [0.5, 0.5, 0.1], 9, False),
        (StopLimits(), [0.9, 0.9], 2.0, True),  # compression asks for clusters of more than two
        (StopLimits(), [0.9, 0.9], 2.5, False),
    ],
)
def test_stops_after_clustering(limits: StopLimits, sparsities: list[float], size: float, stops: bool) -> None:
    assert (stop_after_clustering(sparsities, size, limits) is not None) == stops
