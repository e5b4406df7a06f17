from __future__ import annotations

import pytest

from hirag_dist.readers.office.placed_text import PlacedText, TextTooLong, table_row


def test_blocks_and_places() -> None:
    found = PlacedText(100)
    found.add("Before.")
    found.begin("section", section=" The  lamp ")
    found.add("  ")
    found.add("It is lit.")
    found.begin("")
    found.add("After.", "\n")
    assert found.text() == "Before.\n\nIt is lit.\nAfter."
    (place,) = found.places()
    assert found.text()[place["start"] : place["end"]].strip() == "It is lit."
    assert (place["kind"], place["section"]) == ("section", "The lamp")


def test_tables() -> None:
    found = PlacedText(100)
    found.table([["a", "b|c", ""], ["d"]], [4, 5], "Sheet")
    assert found.text() == "| a | b\\|c |\n| --- | --- |\n| d |  |"
    assert [place["row"] for place in found.places()] == [4, 5]
    found.table([["", ""]])
    found.table([])
    assert found.text().endswith("| d |  |")
    assert table_row(["a\nb"], 2) == "| a b |  |"


def test_a_limit() -> None:
    with pytest.raises(TextTooLong):
        PlacedText(3).add("words")
