"""Text to sentences and words."""

from __future__ import annotations

import pytest

from hirag_dist.llm.rule_based.sentences import clean, sentences, split_sentences, tokens


def test_sentences_end_where_they_do() -> None:
    text = "Mr. Cox met Dr. Lee on Jan. 5. They talked. “Why?” he asked. It was at 3 p.m. in the U.S. Senate."
    assert sentences(text) == [
        "Mr. Cox met Dr. Lee on Jan. 5.",
        "They talked.",
        "“Why?” he asked.",
        "It was at 3 p.m. in the U.S. Senate.",
    ]


def test_hard_wrapped_lines_are_joined_and_list_lines_are_not() -> None:
    wrapped = "The queen lays her eggs in the cells of the comb and the\nworkers feed the brood with royal jelly.\nAll"
    assert sentences(wrapped)[0].endswith("and the workers feed the brood with royal jelly.")
    assert sentences("Miki Manojlović as Azem\nIva Krajnc as Lea\nVojo Mirić as Filip, a man from the far north") == [
        "Miki Manojlović as Azem",
        "Iva Krajnc as Lea",
        "Vojo Mirić as Filip, a man from the far north",
    ]


def test_chinese_sentences_end_at_their_own_marks() -> None:
    assert sentences("悟空道：“好！”众猴大喜。天色已晚") == ["悟空道：“好！”", "众猴大喜。", "天色已晚"]


@pytest.mark.parametrize(
    ("raw", "gone"),
    [
        ("see https://example.org/a?b=c now", "example.org"),
        ("write to someone@example.org now", "@"),
        ("<p class='x'>Hello <b>world</b></p>", "class"),
        (r"as \cite{White2006} shows $x_i^2$ \begin{equation}a=b\end{equation}", "cite"),
        (r"as $\alpha_{ij}$ shows", "alpha"),
        ("results of BIBREF12 , SECREF3 hold", "REF"),
        ("QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9wcXJzdHV2d3h5eg==", "QUJD"),
        ("a<|>b##c<|COMPLETE|> d <|endoftext|> e", "<|"),
        ("zero\u200bwidth\x00", "\u200b"),
    ],
)
def test_clean_takes_out_what_is_not_text(raw: str, gone: str) -> None:
    assert gone not in clean(raw)


def test_glued_sentences_are_parted() -> None:
    assert sentences(clean("He won in 1954.He retired soon.")) == ["He won in 1954.", "He retired soon."]


def test_headings_in_capitals_get_common_spelling() -> None:
    assert tokens("HENRY VIII OF ENGLAND") == ["Henry", "VIII", "Of", "England"]
    assert tokens("Mr. Cox's dog ran.") == ["Mr.", "Cox's", "dog", "ran", "."]


def test_sentences_end_where_the_writing_ends_them() -> None:
    assert split_sentences("ولد في القاهرة. كتب رواية؟ نعم.") == ["ولد في القاهرة.", "كتب رواية؟", "نعم."]
    assert split_sentences("यह सत्य है। वह नहीं।") == ["यह सत्य है।", "वह नहीं।"]
    assert split_sentences("One came. Two left.") == ["One came.", "Two left."]
    assert len(split_sentences("แม่น้ำเจ้าพระยาไหลลงสู่อ่าวไทย " * 10)) > 3
    assert split_sentences("") == []
