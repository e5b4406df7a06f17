"""Circles laid side by side without overlap: how the page draws communities within communities.

Circles are packed by a front chain (Wang, Wang, Dai and Wang, "Visualization of large hierarchical data by circle
packing", CHI 2006), dots within a circle on a sunflower's spiral. Nothing is random: the same sizes give the
same picture.
"""

from __future__ import annotations

import math
import operator

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatVector

Points = NDArray[np.float64]

_GOLDEN_ANGLE = math.pi * (3.0 - math.sqrt(5.0))
_DENSITY = 0.62  # share of a disc that dots on a spiral may cover before they touch
_FEW = 60  # up to so many circles every place on the ring is tried


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
    """Return (n, 2) centres of circles that do not overlap, near the origin; give the largest first."""
    chain = _FrontChain(radii.tolist())
    for circle in range(len(radii)):
        chain.add(circle)
    return np.array([chain.x, chain.y], dtype=np.float64).T.reshape(-1, 2)


def enclosing_circle(centres: Points, radii: FloatVector, rounds: int = 300) -> tuple[float, float, float]:
    """Return (x, y, radius) of a circle that holds all the circles, within a percent of the smallest one.

    The centre walks towards the farthest circle by ever shorter steps (Bădoiu and Clarkson 2003).
    """
    if not len(radii):
        return 0.0, 0.0, 0.0
    centre = np.average(centres, axis=0, weights=radii**2)
    best, best_reach = centre, math.inf
    for step in range(2, rounds + 2):
        away = centres - centre
        distance = np.hypot(away[:, 0], away[:, 1])
        reach = distance + radii
        far = int(np.argmax(reach))
        if reach[far] < best_reach:
            best, best_reach = centre, float(reach[far])
        centre = centre + away[far] * (reach[far] / max(distance[far], 1e-9)) / step * 0.5
    return float(best[0]), float(best[1]), best_reach


class _FrontChain:
    """The circles placed so far, and the ring of outer ones as a doubly linked list, counter-clockwise."""

    def __init__(self, radii: list[float]) -> None:
        self.radii = radii
        self.x = [0.0] * len(radii)
        self.y = [0.0] * len(radii)
        self._next = [0] * len(radii)
        self._previous = [0] * len(radii)
        self._any = 0

    def add(self, circle: int) -> None:
        """Place the circle against the two outer neighbours that touch nearest to the middle."""
        if circle == 0:
            return
        if circle == 1:
            self.x[0], self.x[1] = -self.radii[1], self.radii[0]  # the point where they touch is the origin
            self._link(0, 1)
            self._link(1, 0)
            return
        before = self._best_pair(circle) if len(self.radii) <= _FEW else -1
        before = self._nearest_pair() if before < 0 else before
        after = self._next[before]
        while True:
            self._place(circle, before, after)
            hit, forward = self._collision(circle, before, after)
            if hit < 0:
                break
            before, after = (before, hit) if forward else (hit, after)
            self._link(before, after)
        self._link(before, circle)
        self._link(circle, after)
        self._any = circle

    def _best_pair(self, circle: int) -> int:
        """The first of the neighbours between which the circle lies nearest to the middle and overlaps none, or -1."""
        areas = [radius * radius for radius in self.radii[:circle]]
        middle_x = sum(map(operator.mul, areas, self.x)) / sum(areas)
        middle_y = sum(map(operator.mul, areas, self.y)) / sum(areas)
        best, best_reach = -1, math.inf
        here = self._any
        while True:
            there = self._next[here]
            self._place(circle, here, there)
            reach = math.hypot(self.x[circle] - middle_x, self.y[circle] - middle_y)
            if reach < best_reach and self._collision(circle, here, there)[0] < 0:
                best, best_reach = here, reach
            here = there
            if here == self._any:
                return best

    def _link(self, first: int, second: int) -> None:
        self._next[first], self._previous[second] = second, first

    def _nearest_pair(self) -> int:
        """The first of the neighbours on the chain whose point of contact is nearest to the origin."""
        x, y, radii = self.x, self.y, self.radii
        best, best_distance = self._any, math.inf
        here = self._any
        while True:
            there = self._next[here]
            both = radii[here] + radii[there]
            px = (x[here] * radii[there] + x[there] * radii[here]) / both
            py = (y[here] * radii[there] + y[there] * radii[here]) / both
            distance = px * px + py * py
            if distance < best_distance:
                best, best_distance = here, distance
            here = there
            if here == self._any:
                return best

    def _place(self, circle: int, before: int, after: int) -> None:
        """Put the circle where it touches both, on the outer side."""
        dx, dy = self.x[after] - self.x[before], self.y[after] - self.y[before]
        apart = math.hypot(dx, dy)
        first = self.radii[before] + self.radii[circle]
        second = self.radii[after] + self.radii[circle]
        along = (first * first - second * second + apart * apart) / (2 * apart)
        aside = math.sqrt(max(first * first - along * along, 0.0))
        self.x[circle] = self.x[before] + (dx * along + dy * aside) / apart
        self.y[circle] = self.y[before] + (dy * along - dx * aside) / apart

    def _collision(self, circle: int, before: int, after: int) -> tuple[int, bool]:
        """The nearest circle of the chain, forwards or backwards, that the placed one overlaps; -1 if there is none."""
        ahead, behind = self._next[after], self._previous[before]
        ahead_length, behind_length = self.radii[after], self.radii[before]
        while ahead != before and behind != after:
            if ahead_length <= behind_length:
                if self._overlap(circle, ahead):
                    return ahead, True
                ahead_length += self.radii[ahead]
                done, ahead = ahead == behind, self._next[ahead]
            else:
                if self._overlap(circle, behind):
                    return behind, False
                behind_length += self.radii[behind]
                done, behind = ahead == behind, self._previous[behind]
            if done:
                break
        return -1, True

    def _overlap(self, first: int, second: int) -> bool:
        dx, dy = self.x[first] - self.x[second], self.y[first] - self.y[second]
        touch = self.radii[first] + self.radii[second]
        return dx * dx + dy * dy < touch * touch * (1 - 1e-9)
