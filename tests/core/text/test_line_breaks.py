"""Line breaks inside sentences."""

from __future__ import annotations

import textwrap

import pytest

from hirag_dist.core.text.normalize import unwrapped

PROSE = (
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of Foolishness, "
    "it was the epoch of Belief. Mr. Lorry, of Tellson's Bank, came down to Dover in November by the mail coach, and "
    "a clerk of the Royal George Hotel opened the door."
)


@pytest.mark.parametrize("width", [50, 70, 76, 80])
def test_a_wrapped_paragraph_is_one_line(width: int) -> None:
    wrapped = textwrap.fill(PROSE, width)
    assert wrapped.count("\n") > 1
    text = f"CHAPTER I.\n\n{wrapped}\n\nAnother paragraph."
    found = unwrapped(text)
    assert found == text.replace(wrapped, PROSE)
    assert len(found) == len(text)


def test_writing_without_capitals_goes_on() -> None:
    line = "北京是中国的首都" * 5
    assert unwrapped(f"{line}\n{line}。\n\n{line}") == f"{line} {line}。\n\n{line}"


@pytest.mark.parametrize(
    "text",
    [
        "Name: Alice Holm\nAge: 31\nTown: Perth",
        "Whose woods these are I think I know.\nHis house is in the village though;\nHe will not see me stopping here",
        "2024-01-01 10:00:00 INFO the service was started here\n2024-01-01 10:00:01 INFO the service was stopped here",
        "Things that the keeper took with him on the boat:\n- a lamp for the long nights of the winter\n- some oil",
        "| lamp of the lighthouse | lit in the year of 1921 |\n| tower of the lighthouse | painted in the year 1987 |",
        "# The lighthouse of the bay of mist, a history of it\nthe tower was painted",
        "apples\npears\nplums",
        "a line of a hundred and more characters, " * 5 + "\nand the next one, which is a line of its own",
        "",
        "\n\n",
    ],
)
def test_lines_that_end_what_they_say_stay(text: str) -> None:
    assert unwrapped(text) == text
