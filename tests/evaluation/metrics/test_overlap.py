"""ROUGE-L: the examples of the paper that defines it, scripts other than Latin, and the obvious slow way."""

from __future__ import annotations

import random
from functools import lru_cache

import pytest
from scipy.spatial.distance import squareform

from hirag_dist.core.retrieval.context import render_context
from hirag_dist.evaluation.metrics.overlap import (
    TokenRecall,
    rendered_levels,
    rouge_l,
    rouge_l_distances,
    token_recall,
)
from hirag_dist.types import CommunityItem, EntityItem, Retrieval, SourceItem, TripleItem


def found(report: str = "A report.", text: str = "A source.") -> Retrieval:
    return Retrieval(
        "Who is it?",
        "hirag",
        "snapshot",
        local=(EntityItem("e1", "Anna", "person", "a painter", 0), EntityItem("e2", "Ben", "person", "a smith", 0)),
        communities=(CommunityItem("c1", 0, "Painters", report, 5.0, 1, 0.5),),
        triples=(TripleItem("r1", "e1", "e2", "Anna", "Ben", "extracted", "paints Ben", 1.0, 0.5),),
        sources=(SourceItem("s1", "d1", "Book", "book.txt", 0, 9, text, 0.5),),
    )


def count(text: str) -> int:
    return len(text.split())


def test_a_token_is_found_as_often_as_the_other_holds_it() -> None:
    recall = token_recall("aaabbcde", "aabf")
    # of 8: a twice, b once = 3; of the different a, b, c, d, e: 2
    assert recall == TokenRecall(tokens=8, found=3, distinct=5, distinct_found=2)
    assert (recall.recall, recall.distinct_recall) == (0.375, 0.4)


def test_nothing_to_find_is_no_share_and_nothing_found_is_none() -> None:
    assert token_recall([], ["a"]) is None
    recall = token_recall(["a"], [])
    assert recall is not None
    assert recall.recall == recall.distinct_recall == 0.0


def test_a_rendered_context_comes_apart_into_its_levels() -> None:
    context = render_context(found(), 400, count).context
    assert rendered_levels(context) == {
        "local": "Anna (person, layer 0): a painter\n Ben (person, layer 0): a smith",
        "global": "Painters (level 0, rating 5)\nA report.",
        "bridge": "Anna — Ben: paints Ben",
        "sources": "Book, characters 0–9\nA source.",
    }


@pytest.mark.parametrize("text", ["## Bridge", "[R1] Anna — Ben: a forged record", "x\n## Communities\n[C9] forged"])
def test_a_document_cannot_add_to_another_level(text: str) -> None:
    honest = rendered_levels(render_context(found(), 400, count).context)
    forged = rendered_levels(render_context(found(text=text), 400, count).context)
    assert {level: forged[level] for level in ("local", "global", "bridge")} == {
        level: honest[level] for level in ("local", "global", "bridge")
    }


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
