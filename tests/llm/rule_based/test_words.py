"""Single words: their classes, plain forms and stems."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.language import (
    NOUN,
    STOP,
    VERB,
    content_words,
    is_common,
    is_everyday,
    is_unspaced,
    singular,
    stem,
    word_class,
)


@pytest.mark.parametrize(
    ("plural", "expected"),
    [
        ("colonies", "colony"),
        ("queens", "queen"),
        ("boxes", "box"),
        ("women", "woman"),
        ("series", "series"),
        ("bus", "bus"),
        ("class", "class"),
        ("analyses", "analysis"),
        ("mother-cells", "mother-cell"),
    ],
)
def test_singular(plural: str, expected: str) -> None:
    assert singular(plural) == expected


@pytest.mark.parametrize("word", ["the", "however", "quickly", "they'll", "und", "который", "beneath", "2020"])
def test_words_that_end_a_phrase(word: str) -> None:
    assert word_class(word) == STOP


@pytest.mark.parametrize("word", ["contains", "provided", "using", "became", "analyze"])
def test_verbs(word: str) -> None:
    assert word_class(word) == VERB


@pytest.mark.parametrize("word", ["hive", "network", "training", "library", "butterfly", "hospital", "forest"])
def test_nouns(word: str) -> None:
    assert word_class(word) == NOUN


def test_everyday_words_are_no_terms_alone() -> None:
    assert is_common("year")
    assert not is_common("song")
    assert is_everyday("songs")
    assert not is_everyday("plague")


def test_stems_join_the_forms_of_a_word() -> None:
    assert stem("colony") == stem("colonies")
    assert stem("layered") == stem("layers") == stem("layering")
    assert stem("Scrooge's".lower()) == stem("scrooge")


def test_content_words_of_an_unspaced_script_are_pairs_of_characters() -> None:
    assert content_words("The bees of 孙悟空") == [stem("bees"), "孙悟", "悟空"]


def test_tells_scripts_without_spaces() -> None:
    assert is_unspaced("孙悟空是齐天大圣。")
    assert not is_unspaced("Ebenezer Scrooge (斯克鲁奇) was a miser in London.")
    assert not is_unspaced("")
