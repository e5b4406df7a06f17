"""Positions in originals, merged for a stretch of text, in words and as links."""

from __future__ import annotations

from itertools import pairwise

import pytest

from hirag_dist.core.retrieval.places import StoredPlace, display, link, places_between
from hirag_dist.types import Box

WHOLE = 65_535


def lines(page: int, start: int, count: int) -> list[StoredPlace]:
    """Lines of 10 characters, one below the other, each a twentieth of the page high and half as wide."""
    height = WHOLE // 20
    boxes = [(0, top, WHOLE, top + height) for top in range(0, count * height, height)]
    firsts = range(start, start + 10 * count, 10)
    return [StoredPlace(at, at + 10, "page", page, "", "", "", 0, [box]) for at, box in zip(firsts, boxes, strict=True)]


def test_lines_of_a_page_are_one_place_with_one_box() -> None:
    found = places_between([*lines(1, 0, 3), *lines(2, 30, 2)], "a.pdf", 5, 45, "x" * 40)
    assert [(place.start, place.end, place.page, place.display, place.link) for place in found] == [
        (5, 30, 1, "p. 1", "a.pdf#page=1"),
        (30, 45, 2, "p. 2", "a.pdf#page=2"),
    ]
    (box,) = found[0].boxes
    assert box == Box(0, 0, 1, pytest.approx(0.15, abs=1e-3))


def test_columns_are_boxes_of_their_own() -> None:
    left = [(0, 100, 300, 120), (0, 120, 300, 140)]
    right = [(350, 100, 600, 120), (350, 120, 600, 140)]
    rows = [StoredPlace(at, at + 1, "page", 1, "", "", "", 0, [box]) for at, box in enumerate([*left, *right])]
    (place,) = places_between(rows, "a.pdf", 0, 4, "abcd")
    assert [(round(box.left * WHOLE), round(box.right * WHOLE)) for box in place.boxes] == [(0, 300), (350, 600)]


def test_an_exact_place_has_a_box_for_each_line_cut_to_its_characters() -> None:
    (place,) = places_between(lines(1, 0, 3), "a.pdf", 5, 22, "x" * 17, exact=True)
    assert [(round(box.left, 2), round(box.right, 2)) for box in place.boxes] == [(0.5, 1), (0, 1), (0, 0.2)]
    assert all(above.bottom <= below.top for above, below in pairwise(place.boxes))


def test_sections_and_rows_in_words() -> None:
    section = StoredPlace(0, 9, "section", 0, "", "Install", "install", 0)
    assert display(section) == "Install"
    assert display(StoredPlace(0, 9, "section", 0, "", "", "install", 0)) == "install"
    assert display(StoredPlace(0, 9, "slide", 3, "", "Prices", "", 0)) == "slide 3, Prices"
    assert display(StoredPlace(0, 9, "page", 7, "7", "report.pdf", "", 0)) == "report.pdf, p. 7"
    rows = [StoredPlace(at, at + 1, "sheet", 0, "", "Prices", "", at + 2) for at in range(3)]
    (place,) = places_between(rows, "a.xlsx", 0, 3, "abc")
    assert (place.display, place.row, place.link) == ("Prices, rows 2–4", 2, "a.xlsx")


def test_sections_with_several_anchors_are_one_place_of_a_chunk() -> None:
    rows = [StoredPlace(at, at + 1, "section", 0, "", "Notes", f"note-{at}", 0) for at in range(3)]
    (place,) = places_between(rows, "a.html", 0, 3, "abc")
    assert (place.anchor, place.link) == ("note-0", "a.html#note-0")


def test_links() -> None:
    assert link("") == ""
    assert link("javascript:alert(1).html", anchor="x") == "javascript%3Aalert%281%29.html#x"
    assert link("a.pdf.gz", page=7) == "a.pdf.gz"
    assert link("a.html", anchor='"><script>') == "a.html#%22%3E%3Cscript%3E"
    assert link("a.docx", anchor="x", text="some words") == "a.docx"
    long = link("a.html", anchor="x", text="one two three four five six seven eight nine ten eleven twelve thirteen")
    assert (
        long == "a.html#x:~:text=one%20two%20three%20four%20five%20six,eight%20nine%20ten%20eleven%20twelve%20thirteen"
    )
    assert link("a.txt", text="name | price\n1 | 2") == "a.txt#:~:text=name,2"
