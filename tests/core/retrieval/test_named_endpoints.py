"""Entities that a question names, as endpoints of the bridge."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.core.retrieval.entity_linking import (
    MAX_READ,
    asks_for_paths,
    found_names,
    longest_phrases,
    name_keys,
    named_endpoints,
    named_entities,
    sorted_names,
    words,
)


def endpoints(
    question: str, names: Sequence[str], layers: Sequence[int] = (), closeness: Sequence[float] = ()
) -> list[str]:
    keys, rows = name_keys(names)
    phrases = longest_phrases(found_names(sorted_names(keys, rows), words(question)))
    near = dict(enumerate(closeness or [0.0] * len(names)))
    named = named_entities(question, phrases, np.array(layers or [0] * len(names)), near)
    return [f"{names[row]} {row}" for row in named_endpoints(named)]


@pytest.mark.parametrize(
    ("question", "names", "expected"),
    [
        ("How is Ada Byron connected to Turing?", ["Turing", "Ada Byron", "Ada"], ["Ada Byron 1", "Turing 0"]),
        ("How is Ada connected to the Ada?", ["Ada", "Turing"], []),
        (
            "What links part 7b to AB-1234 and glue?",
            ["glue", "part 7b", "ab-1234"],
            ["part 7b 1", "ab-1234 2", "glue 0"],
        ),
        ("İstanbul ile Ada nasıl bağlı?", ["Ada", "bağlı"], ["Ada 0", "bağlı 1"]),
    ],
)
def test_the_entities_that_a_question_names(question: str, names: list[str], expected: list[str]) -> None:
    assert endpoints(question, names) == expected


def test_of_equal_names_the_lowest_layer_then_the_nearest_counts() -> None:
    names = ["Mercury", "Mercury", "Mercury", "Venus", "Venus"]
    question = "How is Mercury related to Venus?"
    assert endpoints(question, names, [1, 0, 0, 0, 0], [0.9, 0.2, 0.3, 0.5, 0.5]) == ["Mercury 2", "Venus 3"]


@pytest.mark.parametrize(
    ("question", "asks"),
    [
        ("What has A to do with B? Are they connected?", True),
        ("刘备和关羽是什么关系?", True),
        ("Miksi kissa istuu?", True),  # a language without a list
        ("Who wrote it?", False),
        ("总结主题。", False),
        ("x " * MAX_READ + "who", True),  # the words after the limit are not read
    ],
)
def test_questions_that_ask_for_connections(question: str, asks: bool) -> None:
    assert asks_for_paths(question) is asks
