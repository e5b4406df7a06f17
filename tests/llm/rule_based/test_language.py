"""Text to sentences and words."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.language import clean, sentences, split_sentences


def test_sentences_end_where_they_do() -> None:
    text = "Mr. Cox met Dr. Lee on Jan. 5. They talked. “Why?” he asked. It was at 3 p.m. in the U.S. Senate."
    assert sentences(text) == [
        "Mr. Cox met Dr. Lee on Jan. 5.",
        "They talked.",
        "“Why?” he asked.",
        "It was at 3 p.m. in the U.S. Senate.",
    ]


@pytest.mark.parametrize(
    ("raw", "gone"),
    [
        ("see https://example.org/a?b=c now", "example.org"),
        ("write to someone@example.org now", "@"),
        ("<p class='x'>Hello <b>world</b></p>", "class"),
        ("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg==", "QUJD"),
        ("a<|>b##c<|COMPLETE|> d <|endoftext|> e", "<|"),
    ],
)
def test_clean_takes_out_what_is_not_text(raw: str, gone: str) -> None:
    assert gone not in clean(raw)


def test_sentences_end_where_the_writing_ends_them() -> None:
    assert split_sentences("ولد في القاهرة. كتب رواية؟ نعم.") == ["ولد في القاهرة.", "كتب رواية؟", "نعم."]
    assert split_sentences("यह सत्य है। वह नहीं।") == ["यह सत्य है।", "वह नहीं।"]
    assert split_sentences("One came. Two left.") == ["One came.", "Two left."]
    assert len(split_sentences("แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย " * 10)) > 3
    assert split_sentences("") == []
