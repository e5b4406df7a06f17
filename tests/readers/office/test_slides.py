from __future__ import annotations

import io

import pptx

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


def test_a_lowered_number_does_not_change_the_number_before_it() -> None:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    low, high = "-25000", "30000"
    for text, baseline in (("H", ""), ("2", low), ("O, 101", "0"), ("1", low), ("0", low), (", 10", ""), ("6", high)):
        run = paragraph.add_run()
        run.text = text
        if baseline:
            run.font._element.set("baseline", baseline)
    file = io.BytesIO()
    presentation.save(file)
    assert read_slides(file.getvalue(), 10_000).text() == "H2O, 101_10, 10^6"
