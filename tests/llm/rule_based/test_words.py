"""Single words: their stems and scripts."""

from __future__ import annotations

from hirag_dist.llm.rule_based.language import (
    content_words,
    is_unspaced,
    stem,
)


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
