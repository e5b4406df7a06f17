"""A text that is too long for one reading is parted in two, at the best place near its middle."""

import pytest

from hirag_dist.core.text.chunking import text_halves


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("It was late. So.\n\nThe ship left. It rained.", "It was late. So.\n\n"),
        ("Ada wrote. Bob read it.", "Ada wrote. "),
        ("one two three four", "one two "),
        ("船在夜里离开。雨下了一整夜。", "船在夜里离开。"),
        ("x" * 9, "xxxx"),
        ("", ""),
    ],
)
def test_the_best_end_in_the_middle_half(text: str, first: str) -> None:
    assert text_halves(text) == (first, text[len(first) :])


def test_an_end_near_the_border_is_not_taken() -> None:
    assert text_halves("A. " + "x" * 40)[0] == "A. " + "x" * 18
