from __future__ import annotations

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
