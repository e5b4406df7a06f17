"""ROUGE-L: the examples of the paper that defines it, scripts other than Latin, and the obvious slow way."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
from scipy.spatial.distance import squareform

from hirag_dist.evaluation.metrics.rouge import rouge_l, rouge_l_distances, rouge_tokens

GUNMAN = "police killed the gunman"


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        ("police kill the gunman", 3 / 4),  # Lin (2004), section 3.1: S2
        ("the gunman kill police", 2 / 4),  # S3
        ("the gunman police killed", 2 / 4),  # S4: only one of two common pairs counts
        ("the POLICE killed, at last, the gunman!", 2 * 4 / (4 + 7)),
        ("police", 2 * 1 / (4 + 1)),
        ("it rained", 0.0),
        ("", 0.0),
        ("…", 0.0),
    ],
)
def test_the_worked_examples(candidate: str, expected: float) -> None:
    assert rouge_l(GUNMAN, candidate) == pytest.approx(expected)
    assert rouge_l(candidate, GUNMAN) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ann's mill cost 3.5 %", ["ann", "s", "mill", "cost", "3", "5"]),
        ("Straße ΟΔΟΣ", ["strasse", "οδοσ"]),
        ("Ёлка стоит", ["ёлка", "стоит"]),
        ("e\u0301te\u0301 ﬁn", ["été", "fin"]),  # composed, and a ligature taken apart
        ("हिन्दी में", ["हिन्दी", "में"]),  # vowel signs are marks, and no end of a word
        ("東京は2020年", ["東", "京", "は", "2020", "年"]),
        ("GPT模型", ["gpt", "模", "型"]),
        ("ที่นี่", ["ที่", "นี่"]),  # a Thai letter keeps its marks
        ("한국어 문장", ["한국어", "문장"]),
        ("العربية", ["العربية"]),
        ("a_b\u00a0c—d", ["a", "b", "c", "d"]),
        ("🙂 \u0301", []),
    ],
)
def test_words_of_any_script(text: str, words: list[str]) -> None:
    assert rouge_tokens(text) == words


def slow_distance(one: list[str], other: list[str]) -> float:
    @lru_cache(None)
    def common(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return 0
        if one[i] == other[j]:
            return 1 + common(i + 1, j + 1)
        return max(common(i + 1, j), common(i, j + 1))

    return 1 - 2 * common(0, 0) / max(len(one) + len(other), 1)


def test_all_pairs_are_as_the_definition_says_one_by_one() -> None:
    draw = random.Random(5)
    texts = [" ".join(draw.choices("abcde", k=draw.randrange(0, 9))) for _ in range(25)]
    found = squareform(rouge_l_distances(texts))
    for row, one in enumerate(texts):
        for column, other in enumerate(texts[:row]):
            assert found[row, column] == pytest.approx(slow_distance(one.split(), other.split())), (one, other)
