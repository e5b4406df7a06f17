"""Path lengths and clustering coefficients as charts, read back from their SVG."""

from __future__ import annotations

import pytest
from lxml import etree

from hirag_dist.core.graph.hierarchy_metrics import PathLengthSample
from hirag_dist.html import Bars
from hirag_dist.html.render import draw_bars
from hirag_dist.inspection.model import ClusteringCoefficients
from hirag_dist.inspection.page import coefficient_chart, path_chart


def bars(chart: Bars) -> list[tuple[str, float]]:
    """The title and the length of each bar."""
    groups = etree.fromstring(draw_bars(chart).encode()).findall("g")
    return [(group.findtext("title") or "", float(group.find("rect").get("width"))) for group in groups]


def lengths(flat: tuple[int, ...], whole: tuple[int, ...], pairs: int) -> PathLengthSample:
    return PathLengthSample(pairs, 9, True, pairs - sum(flat), pairs - sum(whole), None, None, None, flat, whole)


def test_pairs_are_shown_by_hops_with_those_that_have_no_path_apart() -> None:
    shown = bars(path_chart(lengths((0, 0, 30, 20), (0, 10, 70), 100)))
    assert [text for text, _ in shown] == [
        "1, layer 0 alone: 0.0%",
        "1, all layers: 10.0%",
        "2, layer 0 alone: 30.0%",
        "2, all layers: 70.0%",
        "3, layer 0 alone: 20.0%",
        "3, all layers: 0.0%",
        "none, layer 0 alone: 50.0%",
        "none, all layers: 20.0%",
    ]
    tallest = max(height for _, height in shown)
    shares = [0, 10, 30, 70, 20, 0, 50, 20]  # an empty bar is a thin line
    assert [height for _, height in shown] == pytest.approx(
        [tallest * share / 70 for share in shares], abs=0.6
    )  # none is a line


def test_long_paths_share_one_place() -> None:
    shown = bars(path_chart(lengths((0, *([1] * 30)), (0, *([2] * 15)), 30)))
    assert len(shown) == 24
    assert [text for text, _ in shown[-2:]] == ["12+, layer 0 alone: 63.3%", "12+, all layers: 26.7%"]


def test_coefficients_stand_side_by_side() -> None:
    shown = bars(coefficient_chart(ClusteringCoefficients(0.2, 0.4, 3), ClusteringCoefficients(0.1, 0.3, 3)))
    assert shown[1][0] == "global (Eq. 18), all layers: 0.1000"
    heights = [height for _, height in shown]
    assert heights == pytest.approx([heights[2] * share for share in (0.5, 0.25, 1.0, 0.75)], abs=0.1)
