from __future__ import annotations

import pytest

from hirag_dist.extraction import extracted, make_entity_finder, quoted_sentences, split_sentences
from hirag_dist.types import FinderOptions

TEXT = (
    "# Harbours\n\nIt rained all day. Ada Lovelace came to London, the city of many harbours. Nobody knew why. "
    "It was so.\nLovelace met Charles Babbage there."
)


@pytest.mark.parametrize(
    ("quotes", "shown"),
    [
        (["Nobody knew why."], "Nobody knew why."),
        (["Ada Lovelace came to London, the city of many harbours. Nobody knew why."], [2, 3]),
        (["…came to London, the city of…", "Lovelace met Charles Babbage there."], [2, 5]),
        (["Ada Lovelace came to London, … Lovelace met Charles…"], [2, 5]),
        (["Nobody knew why. It rained…"], [3]),  # too little of a sentence to know it by
    ],
)
def test_quoted_sentences_are_shown_whole_and_in_order(quotes: list[str], shown: str | list[int]) -> None:
    lines = split_sentences(TEXT)
    found = quoted_sentences(TEXT, quotes)
    expected = [shown] if isinstance(shown, str) else [lines[place] for place in shown]
    assert [line for line in found.split("\n") if line] == expected


def test_an_empty_line_stands_for_what_is_left_out() -> None:
    text = "Ada came. Bo Lee left then. Cy Young stayed on. Di Ash slept well."
    assert quoted_sentences(text, ["Bo Lee left then. Cy Young stayed on."]) == "Bo Lee left then.\nCy Young stayed on."
    assert quoted_sentences(text, ["Bo Lee left then.", "Di Ash slept well."]) == (
        "Bo Lee left then.\n\nDi Ash slept well."
    )


def test_a_name_that_is_quoted_in_part_is_shown_in_full_once() -> None:
    quote = "Lovelace met Charles Babbage there."
    assert quoted_sentences(TEXT, [quote], ["Charles Babbage"]) == quote
    assert "Ada Lovelace came to London" in quoted_sentences(TEXT, [quote], ["Ada Lovelace"])
    assert quoted_sentences(TEXT, [quote], ["Grace Hopper"]) == quote


def test_a_text_of_which_nothing_is_quoted_is_shown_as_it_is() -> None:
    assert quoted_sentences(TEXT, ["Prague is a city in Bohemia."]) == TEXT
    assert quoted_sentences(TEXT, [""]) == TEXT


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        "孙悟空是花果山的美猴王。天下雨了。孙悟空有金箍棒。花果山在东胜神洲。孙悟空住在花果山。",
        "Ada Lovelace sailed from the harbour of London, " + "past many ships, " * 40 + "to Charles Babbage. He slept.",
    ],
)
def test_what_rules_say_is_found_again(text: str) -> None:
    lines = split_sentences(text)
    found = extracted(make_entity_finder(FinderOptions("builtin")).find([lines], ["person"])[0], lines)
    rows = [*found.entities, *found.relations]
    assert found.entities
    for row in rows:
        shown = quoted_sentences(text, [row.description]).split("\n")
        assert any(line in lines for line in shown)
        assert len(shown) < len(lines)
