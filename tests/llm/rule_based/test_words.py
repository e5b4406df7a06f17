"""Single words: their stems and scripts."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.language import Script, content_words, is_english, scripts_of, stem


def test_stems_join_the_forms_of_a_word() -> None:
    assert stem("colony") == stem("colonies")
    assert stem("layered") == stem("layers") == stem("layering")
    assert stem("Scrooge's".lower()) == stem("scrooge")


def test_content_words_of_an_unspaced_script_are_pairs_of_characters() -> None:
    assert content_words("The bees of 孙悟空") == [stem("bees"), "孙悟", "悟空"]


@pytest.mark.parametrize(
    ("text", "script"),
    [
        ("Der Kurfürst gründete die Universität.", Script.CASED),
        ("Лев Толстой", Script.CASED),
        ("نجيب محفوظ", Script.CASELESS),
        ("महात्मा गांधी", Script.CASELESS),
        ("세종대왕은 훈민정음을", Script.CASELESS),
        ("孙悟空", Script.IDEOGRAPHIC),
        ("ひらがな", Script.IDEOGRAPHIC),
        ("กรุงเทพมหานคร", Script.UNSPACED),
        ("ភ្នំពេញ", Script.UNSPACED),
    ],
)
def test_the_writing_of_a_text(text: str, script: Script) -> None:
    assert scripts_of(text) == (script,)


def test_english_is_known_by_its_function_words() -> None:
    assert is_english("It was the best of times, it was the worst of times.")
    assert not is_english("Die Bibliothek der Universität besitzt den Codex Manesse.")
    assert not is_english("")
