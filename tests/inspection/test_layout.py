"""Circles and dots do not overlap, lie close together, and lie where they lay before."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.inspection.graph_view import lay_out, pack_circles

Floats = NDArray[np.float64]


def largest_overlap(points: Floats, radii: Floats) -> float:
    """Return the largest overlap of two circles, by looking at every pair."""
    apart = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)) - radii[:, None] - radii[None]
    np.fill_diagonal(apart, np.inf)
    return float(-apart.min())


def heavy_tailed(n: int, seed: int = 0) -> Floats:
    radii: Floats = np.sort(np.random.default_rng(seed).pareto(1.5, n) + 0.3)[::-1].copy()
    return radii


@pytest.mark.parametrize("n", [2, 3, 7, 400])
def test_packed_circles_touch_but_do_not_overlap(n: int) -> None:
    radii = heavy_tailed(n)
    points = pack_circles(radii)
    assert abs(largest_overlap(points, radii)) < 1e-6
    assert np.array_equal(points, pack_circles(radii))


def test_dots_lie_in_their_communities_and_those_in_their_parents() -> None:
    # Community 0 holds 1 and 2 and two dots of its own; 3 is next to it; the last dot has no community.
    homes = np.array([1, 1, 1, 2, 2, 0, 0, 3, -1])
    parents = np.array([-1, 0, 0, -1, -1])
    found = lay_out(homes, parents, np.full(9, 1.5))
    for dot, home in zip(found.dots[:8], homes[:8], strict=True):
        assert np.hypot(*(dot - found.circles[home])) + 1.5 <= found.circle_radii[home] + 1e-9
    for child in (1, 2):
        reach = np.hypot(*(found.circles[child] - found.circles[0])) + found.circle_radii[child]
        assert reach <= found.circle_radii[0] + 1e-9
    assert found.circle_radii[4] == 0.0  # nothing of it is drawn
    assert largest_overlap(found.circles[1:4], found.circle_radii[1:4]) <= 0
    assert largest_overlap(found.dots, found.dot_radii) <= 0
    assert np.all(np.hypot(found.circles[:4, 0], found.circles[:4, 1]) + found.circle_radii[:4] <= found.radius + 1e-9)
