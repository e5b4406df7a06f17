"""Charts: axes that reach from the smallest value to the largest, with round marks."""

from __future__ import annotations

from typing import Any

import pytest
from lxml import html

from hirag_dist.html import Bars, Lines, draw_bars, draw_lines
from hirag_dist.types.index_info import Interval


def marks(svg: str, kind: str, along: str) -> list[tuple[float, float]]:
    """Return (place, value) of the texts of an axis that are numbers or shares."""
    found = []
    for text in html.fromstring(svg).xpath(f"//text[@class='{kind}']"):
        said = text.text.rstrip("%k")
        scale = {"%": 0.01, "k": 1000.0}.get(text.text[-1], 1.0)
        if said.replace(".", "").lstrip("-").isdigit():
            found.append((float(text.get(along)), float(said) * scale))
    return found


def reaches(axis: list[tuple[float, float]], low: float, high: float) -> bool:
    values = [value for _, value in axis]
    return min(values) <= low and max(values) >= high


@pytest.mark.parametrize("values", [(0.0, 2.3), (0.07, 0.0931), (3.0, 41.0), (5.0, 5.0), (-3.0, 1.1), (0.0, 10.0)])
@pytest.mark.parametrize("from_zero", [True, False])
def test_the_axes_of_curves_reach_their_last_values(values: tuple[float, ...], from_zero: bool) -> None:
    points = [(float(at), values[at % len(values)]) for at in range(23)]
    svg = draw_lines(Lines("t", "x", "y", {"one": points}, form=".6g", from_zero=from_zero))
    heights = marks(svg, "soft end", "y")
    assert reaches(heights, min(values), max(values))
    circles: list[Any] = html.fromstring(svg).xpath("//circle")
    tops = [float(circle.get("cy")) for circle in circles]
    assert min(place for place, _ in heights) - 4.1 <= min(tops) <= max(tops) <= max(place for place, _ in heights)
    assert reaches(marks(svg, "soft mid", "x"), 0, 22)


@pytest.mark.parametrize(
    ("bars", "low", "high"),
    [
        ([0.4, 2.3], 0.0, 2.3),
        ([12.0, 47.0], 0.0, 47.0),
        ([-3.2, 1.1], -3.2, 1.1),
        ([10.0, 5.0], 0.0, 10.0),
        ([Interval(0.021, 0.011, 0.037)], 0.0, 0.037),
    ],
)
def test_the_axis_of_bars_reaches_the_longest_and_the_end_of_its_interval(
    bars: list[float | Interval], low: float, high: float
) -> None:
    svg = draw_bars(Bars("t", {"": [(str(at), bar) for at, bar in enumerate(bars)]}, form=".2f", whole=None))
    assert reaches(marks(svg, "soft mid", "x"), low, high)
    shares = draw_bars(Bars("t", {"": [("a", 0.25)]}))
    assert marks(shares, "soft mid", "x")[-1][1] == 1.0, "a chart of shares ends at all of them"


@pytest.mark.parametrize("most", [1.0, 2.0, 9.0, 10.0, 237.0, 5001.0, 12_345.0])
def test_a_logarithmic_axis_reaches_the_longest_bar(most: float) -> None:
    svg = draw_bars(Bars("t", {"": [("a", 1.0), ("b", most)]}, form=",.0f", whole=None, log=True))
    axis = marks(svg, "soft mid", "x")
    assert reaches(axis, 0.0, most)
    assert len({value for _, value in axis}) == len(axis)
