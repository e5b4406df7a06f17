"""Words by which a question shows its type."""

from __future__ import annotations

import pytest

from hirag_dist.core.retrieval.entity_linking import words
from hirag_dist.core.retrieval.question_words import MAX_READ, WORDS_OF_CLASS, question_words


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Who wrote it?", {"fact": ["who"]}),
        ("Wer schrieb das?", {"fact": ["wer"]}),
        ("¿Dónde está?", {"fact": ["dónde"]}),
        ("Où est-il ?", {"fact": ["où"]}),
        ("他们是谁?", {"fact": ["谁"]}),
        ("What do A and B have in common?", {"comparison": ["in common"]}),
        ("Worin unterscheiden sich A und B?", {"comparison": ["unterscheiden"]}),
        ("A和B有什么区别?", {"comparison": ["区 别"]}),
        ("What has A to do with B? Are they connected?", {"path": ["connected"]}),
        ("Quel est le lien entre A et B ?", {"fact": ["quel"], "path": ["lien"]}),
        ("刘备和关羽是什么关系?", {"path": ["关 系"]}),
        ("Gib einen Überblick.", {"corpus-wide": ["überblick"]}),
        ("总结主题。", {"corpus-wide": ["总 结", "主 题"]}),
        ("Miksi kissa istuu?", {}),
        ("", {}),
    ],
)
def test_words_of_the_listed_languages(question: str, found: dict[str, list[str]]) -> None:
    assert {name: each for name, each in question_words(words(question)).items() if name != "other"} == found


def test_other_words_show_the_language() -> None:
    assert question_words(["what", "is", "tea"]) == {"other": ["what", "is"]}
    assert question_words(words("Miksi kissa istuu?")) == {}


def test_phrases_are_cut_as_questions_are_and_belong_to_one_class() -> None:
    every = [phrase for phrases in WORDS_OF_CLASS.values() for phrase in phrases]
    assert [phrase for phrase in every if " ".join(words(phrase)) != phrase] == []
    assert len(every) == len(set(every))


def test_a_long_question_is_read_to_a_bound() -> None:
    assert question_words(["x"] * MAX_READ + ["who"]) == {}
