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


PAPER = StopLimits(rule="paper", min_change_rate=0.05, max_layers=100)


def test_paper_rule_stops_at_its_rate_and_not_above() -> None:
    limits = StopLimits(rule="paper", min_change_rate=0.0625)  # exact in binary, as are the sparsities here
    assert stop_after_clustering([0.5, 0.53125], 9, limits) is not None
    assert stop_after_clustering([0.5, 0.46875], 9, limits) is not None
    assert stop_after_clustering([0.5, 0.5313], 9, limits) is None
    assert stop_after_clustering([0.5], 1, limits) is None, "the first layer has nothing to be compared with"
    assert stop_after_clustering([0.5, 0.1, 0.1], 9, limits) is not None, "only the last two count"
    assert stop_after_clustering([0.5, 0.5, 0.1], 9, limits) is None


def test_paper_rule_knows_no_other_reason_than_the_layer_cap_and_size() -> None:
    assert stop_before_clustering(3, 5, 5, PAPER) is None
    assert stop_before_clustering(3, 1, 9, PAPER) == "nothing left to group"
    assert stop_before_clustering(8, 50, 90, replace(PAPER, max_layers=8)) == "max_layers 8 reached"


def test_paper_rule_makes_at_most_50_layers_whatever_max_layers_allows() -> None:
    assert stop_before_clustering(49, 50, 90, PAPER) is None
    assert stop_before_clustering(50, 50, 90, PAPER) == "50 layers, the most of Algorithm 1, reached"
    assert stop_before_clustering(50, 50, 90, replace(PAPER, rule="compression")) is None


def test_compression_rule_stops_when_the_layer_fits_one_cluster() -> None:
    limits = StopLimits(target_cluster_size=20)
    assert stop_before_clustering(1, 21, 100, limits) is None
    assert stop_before_clustering(1, 20, 100, limits) == "the layer fits one cluster"
    assert stop_before_clustering(0, 20, None, limits) == "the layer fits one cluster"
    assert stop_before_clustering(0, 21, None, limits) is None


@pytest.mark.parametrize("below", [50, 1000])
def test_compression_rule_asks_for_a_fifth_less_with_every_step(below: int) -> None:
    limits = StopLimits(target_cluster_size=2)
    assert stop_before_clustering(1, below * 4 // 5, below, limits) is None
    assert "less than 20%" in str(stop_before_clustering(1, below * 4 // 5 + 1, below, limits))


def test_compression_rule_asks_for_clusters_of_more_than_two() -> None:
    assert stop_after_clustering([0.9, 0.9], 2.0, StopLimits()) is not None
    assert stop_after_clustering([0.9, 0.9], 2.5, StopLimits()) is None


def test_no_layers_are_made_where_none_are_wanted() -> None:
    assert stop_before_clustering(0, 1000, None, StopLimits(max_layers=0)) == "max_layers 0 reached"
