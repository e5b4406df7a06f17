from __future__ import annotations

import io

import pptx
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE

from hirag_dist.readers.office.slides import read_slides
from tests.readers.office import makers


def test_slides_with_notes_and_tables() -> None:
    found = read_slides(makers.slides(), 10_000)
    assert found.text() == (
        "## Prices\n\nOil is dear.\nWicks are cheap.\n\nNotes: Say it slowly.\n\n"
        "## Table\n\n| part | price |\n| --- | --- |\n| lens | 12 |"
    )
    assert [(place["kind"], place["page"], place["section"]) for place in found.places()] == [
        ("slide", 1, "Prices"),
        ("slide", 2, "Table"),
    ]
    assert found.title == "Talk"


def test_groups_and_charts() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, 9, 9).text_frame.text = "In a group."
    data = CategoryChartData()
    data.categories = ["2023", "2024"]
    data.add_series("Sales", (1.5, None))
    slide.shapes.add_chart(XL_CHART_TYPE.COLUMN_CLUSTERED, 0, 0, 9, 9, data)
    file = io.BytesIO()
    presentation.save(file)
    assert (
        read_slides(file.getvalue(), 10_000).text()
        == "In a group.\n\n|  | Sales |\n| --- | --- |\n| 2023 | 1.5 |\n| 2024 |  |"
    )
