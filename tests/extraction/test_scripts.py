from __future__ import annotations

import pytest

from hirag_dist.extraction.scripts import Script, is_english, scripts_of, split_sentences


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


def test_sentences_end_where_the_writing_ends_them() -> None:
    assert split_sentences("ولد في القاهرة. كتب رواية؟ نعم.") == ["ولد في القاهرة.", "كتب رواية؟", "نعم."]
    assert split_sentences("यह सत्य है। वह नहीं।") == ["यह सत्य है।", "वह नहीं।"]
    assert split_sentences("One came. Two left.") == ["One came.", "Two left."]
    assert len(split_sentences("แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย " * 10)) > 3
    assert split_sentences("") == []


def test_english_is_known_by_its_function_words() -> None:
    assert is_english("It was the best of times, it was the worst of times.")
    assert not is_english("Die Bibliothek der Universität besitzt den Codex Manesse.")
    assert not is_english("")
