"""Local entities that a question names: against the rule in the slowest words."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from hirag_dist.core.retrieval.entity_linking import found_names, longest_phrases, name_keys, sorted_names, words
from hirag_dist.core.retrieval.named_entities import named_entities, named_first

VOCABULARY = ("ada", "Ada", "b", "B", "theme", "x1", "glue", "of", "東京")
LISTED = ("theme",)  # the words above that only show the type of a question

Ranked = list[tuple[int, float]]


def slow(
    question: Sequence[str],
    names: Sequence[str],
    layers: Sequence[int],
    near: Sequence[float],
    ranked: Ranked,
    limit: int,
) -> tuple[Ranked, frozenset[int]]:
    """Return the local entities: every rule a loop over all names and all words."""
    read = [word.lower() for word in question]
    spans = [(start, end) for start in range(len(read)) for end in range(start + 1, len(read) + 1)]
    taken: list[tuple[int, int]] = []
    for start, end in sorted(spans, key=lambda span: (span[0] - span[1], span[0])):
        is_name = any(name.lower().split() == read[start:end] for name in names)
        if is_name and not any(start < other_end and other_start < end for other_start, other_end in taken):
            taken.append((start, end))
    phrases = []
    for start, end in sorted(taken):
        if " ".join(read[start:end]) in LISTED:
            continue
        rows = [row for row, name in enumerate(names) if name.lower().split() == read[start:end]]
        lowest = [row for row in rows if layers[row] == min(layers[other] for other in rows)]
        best = [row for row in lowest if near[row] == max(near[other] for other in lowest)]
        written = "".join(question[start:end])
        phrases.append((best[0], any(one.isupper() or one.isdigit() for one in written)))
    by_name: list[int] = []
    for wanted in (True, False):
        for row, specific in phrases:
            if specific is wanted and row not in by_name and len(by_name) < limit // 4:
                by_name.append(row)
    found: Ranked = []
    for row, _ in phrases:
        if row in by_name and row not in [other for other, _ in found]:
            found.append((row, near[row]))
    found += [(row, score) for row, score in ranked if row not in by_name]
    return found[:limit], frozenset(by_name)


@pytest.mark.parametrize("seed", range(40))
def test_the_local_entities_are_those_of_the_slow_rule(seed: int) -> None:
    choose = random.Random(seed)
    names = [" ".join(choose.choices(VOCABULARY[:-1], k=choose.randint(1, 3))) for _ in range(choose.randint(0, 14))]
    layers = [choose.randint(0, 2) for _ in names]
    near = [choose.randint(-2, 4) / 4 for _ in names]
    question = choose.choices(VOCABULARY[:-1], k=choose.randint(0, 12))
    limit = choose.randint(1, 20)
    ranked = sorted(enumerate(near), key=lambda one: (-one[1], one[0]))[:limit]
    phrases = longest_phrases(found_names(sorted_names(*name_keys(names)), words(" ".join(question))))
    named = named_entities(" ".join(question), phrases, np.array(layers), dict(enumerate(near)))
    assert named_first(named, ranked, dict(enumerate(near)), limit) == slow(
        question, names, layers, near, ranked, limit
    )


def test_names_in_a_script_without_capitals_are_named_in_their_order() -> None:
    names = ["京都", "東京", "奈良"]
    phrases = longest_phrases(found_names(sorted_names(*name_keys(names)), words("東京と京都と奈良")))
    near = dict.fromkeys(range(3), 0.0)
    named = named_entities("東京と京都と奈良", phrases, np.zeros(3, np.int32), near)
    assert [names[row] for row, _ in named_first(named, [], near, 8)[0]] == ["東京", "京都"]
