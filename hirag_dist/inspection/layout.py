"""Layout of the map: communities as circles within circles, entities as dots in their deepest community.

Nothing is random: the same sizes give the same picture.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatVector, IntVector

Points = NDArray[np.float64]

_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))
_DENSITY = 0.62  # share of a disc that dots on a spiral may cover before they touch
_N_RAYS = 96
_DOT_GAP = 0.7
_LEAF_MARGIN = 3.0  # between the outermost dots and the circle around them
_MARGIN = 6.0  # between circles and the circle around them
_GAP = 4.0  # between neighbouring circles, more between the large ones
_GAP_SHARE = 0.02


@dataclass(frozen=True, slots=True)
class Layout:
    """Places and radii, in units of the drawing; the middle is (0, 0).

    Attributes:
        dots: (n_entities, 2) centres.
        dot_radii: (n_entities,).
        circles: (n_communities, 2) centres.
        circle_radii: (n_communities,); 0 for a community without a drawn entity.
        radius: of the circle around everything.
    """

    dots: Points
    dot_radii: FloatVector
    circles: Points
    circle_radii: FloatVector
    radius: float


def lay_out(homes: IntVector, parents: IntVector, dot_radii: FloatVector) -> Layout:
    """Return the layout.

    Args:
        homes: (n_entities,) the deepest community of each, -1 for none; the first of a home stand in its middle.
        parents: (n_communities,) -1 for none; a parent stands before its children.
        dot_radii: (n_entities,).
    """
    n_communities = len(parents)
    order = np.argsort(homes, kind="stable")
    starts = np.searchsorted(homes[order], np.arange(-1, n_communities + 1))
    own = [order[first:last] for first, last in pairwise(starts)]  # [0] is of those without home
    children: list[list[int]] = [[] for _ in range(n_communities + 1)]
    for community, parent in enumerate(parents.tolist()):
        children[parent + 1].append(community)
    dots = np.zeros((len(homes), 2))
    circles, radii = np.zeros((n_communities, 2)), np.zeros(n_communities)
    whole = 0.0
    for community in range(n_communities - 1, -2, -1):  # bottom up: places relative to the circle that holds them
        inner = [child for child in children[community + 1] if radii[child] > 0]
        radius = _fill(own[community + 1], inner, dots, dot_radii, circles, radii)
        if community >= 0:
            radii[community] = radius
        else:
            whole = radius
    for community in range(n_communities):  # top down: absolute places
        if parents[community] >= 0:
            circles[community] += circles[parents[community]]
    housed = homes >= 0
    dots[housed] += circles[homes[housed]]
    return Layout(dots, dot_radii, circles, radii, whole)


def _fill(
    rows: IntVector, inner: list[int], dots: Points, dot_radii: FloatVector, circles: Points, radii: FloatVector
) -> float:
    """Place a community's own dots and inner circles around (0, 0); return its radius, 0 where there is nothing."""
    places, spread = sunflower(dot_radii[rows] + _DOT_GAP)
    if not inner:
        dots[rows] = places
        return spread + _LEAF_MARGIN if len(rows) else 0.0
    sizes = np.append(radii[inner], spread) if len(rows) else radii[inner]
    spaced = sizes * (1 + _GAP_SHARE) + _GAP
    order = np.argsort(-spaced, kind="stable")
    centres = np.empty((len(sizes), 2))
    centres[order] = pack_circles(spaced[order])
    low, high = (centres - spaced[:, None]).min(axis=0), (centres + spaced[:, None]).max(axis=0)
    centres -= (low + high) / 2
    radius = float(np.max(np.hypot(centres[:, 0], centres[:, 1]) + spaced))
    circles[inner] = centres[: len(inner)]
    if len(rows):
        dots[rows] = places + centres[-1]
    return radius + _MARGIN


def sunflower(radii: FloatVector) -> tuple[Points, float]:
    """Return places for dots around the origin, the first in the middle, and the radius of the disc they fill.

    Args:
        radii: (n,) of the dots, gaps included; largest first looks best.
    """
    areas = radii**2 / _DENSITY
    outer = np.cumsum(areas)
    distance = np.sqrt(outer - areas / 2) if len(radii) > 1 else np.zeros(len(radii))
    angle = np.arange(len(radii)) * _GOLDEN_ANGLE
    points = np.column_stack([distance * np.cos(angle), distance * np.sin(angle)])
    return points, float(np.max(distance + radii, initial=0.0))


def pack_circles(radii: FloatVector) -> Points:
    """Return (n, 2) centres of circles that do not overlap, near the origin; give the largest first.

    Each circle comes from outside along the ray on which it gets nearest to the origin before it touches another.
    """
    centres = np.zeros((len(radii), 2))
    angles = np.arange(_N_RAYS) * math.tau / _N_RAYS
    rays = np.column_stack([np.cos(angles), np.sin(angles)])
    for circle in range(1, len(radii)):
        placed, touching = centres[:circle], radii[:circle] + radii[circle]
        along = rays @ placed.T
        under_root = touching**2 - np.sum(placed**2, axis=1) + along**2  # negative where the ray passes by
        distances = np.where(under_root >= 0, along + np.sqrt(np.maximum(under_root, 0)), 0.0).max(axis=1)
        nearest = int(np.argmin(distances))
        centres[circle] = rays[nearest] * distances[nearest]
    return centres
