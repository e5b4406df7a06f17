"""The choice of a mode by names and words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hirag_dist.core.retrieval.mode_choice import (
    CLASSES,
    FALLBACK,
    MIN_PROBABILITY,
    NAME_FEATURES,
    WORD_FEATURES,
    choose_mode,
    class_probabilities,
    decided,
    question_features,
)
from hirag_dist.core.retrieval.mode_coefficients import BY_NAMES, BY_WORDS, CLASS_MODES

LOCAL_OR_BRIDGE = {"fact": "local", "comparison": "local", "path": "bridge", "corpus-wide": "hirag"}


def test_the_coefficients_are_complete() -> None:
    assert set(CLASS_MODES) == set(BY_WORDS) == set(BY_NAMES) == set(CLASSES)
    for kind in CLASSES:
        assert set(BY_WORDS[kind]) == {"intercept", *NAME_FEATURES, *WORD_FEATURES}
        assert set(BY_NAMES[kind]) == {"intercept", *NAME_FEATURES}


@pytest.mark.parametrize("n_names", [0, 1, 2, 7])
@pytest.mark.parametrize("question", ["Who came?", "Tere tulemast", "How are A and B related or linked?"])
def test_probabilities_are_the_softmax_of_the_scores(question: str, n_names: int) -> None:
    features, found = question_features(question, n_names)
    model = BY_WORDS if found else BY_NAMES
    scores = np.array(
        [model[kind]["intercept"] + sum(model[kind][name] * features[name] for name in features) for kind in CLASSES]
    )
    wanted = np.exp(scores) / np.exp(scores).sum()
    got = class_probabilities(features, model)
    assert [got[kind] for kind in CLASSES] == pytest.approx(wanted.tolist())


def test_features_of_names_and_words() -> None:
    assert question_features("Tere", 0)[0] == {"one name": 0, "several names": 0}
    assert question_features("Tere", 1)[0] == {"one name": 1, "several names": 0}
    features = question_features("Who is older than Bo?", 2)[0]
    assert [name for name, value in features.items() if value] == [
        "several names",
        "words of fact",
        "words of comparison",
    ]


@pytest.mark.parametrize(
    ("question", "names", "kind"),
    [
        ("Who wrote Moby Dick?", ["Moby Dick"], "fact"),
        ("When was the whale seen?", ["whale"], "fact"),
        ("Are Frozen and Bambi both films?", ["Frozen", "Bambi"], "comparison"),
        ("How are Ahab and Newton connected?", ["Ahab", "Newton"], "path"),
        ("Wie hängen Ahab und Newton zusammen, welche Verbindung gibt es?", ["Ahab", "Newton"], "path"),
        ("What are the main themes of the collection?", [], "corpus-wide"),
        ("总结主题。", [], "corpus-wide"),
    ],
)
def test_plain_examples(question: str, names: list[str], kind: str) -> None:
    choice = choose_mode(question, names)
    assert (choice.question_class, choice.mode) == (kind, CLASS_MODES[kind])
    assert 0 < choice.probability <= 1
    assert all(name in choice.reason for name in names)


def test_equal_names_count_once_in_the_order_of_the_question() -> None:
    assert choose_mode("Tere, a!", ["a", "A"]) == choose_mode("Tere, a!", ["a"])
    one, other = choose_mode("Tere, b ja a!", ["b", "a", "B"]), choose_mode("Tere, b ja a!", ["a", "b"])
    assert one.reason.startswith("the question names b, a; ")
    assert replace(one, reason="") == replace(other, reason=""), "the choice does not depend on the order"


def test_an_improbable_class_leaves_every_level() -> None:
    even = {"fact": 0.2, "comparison": 0.2, "path": 0.35, "corpus-wide": 0.25}
    choice = decided(even, LOCAL_OR_BRIDGE, {})
    assert (choice.question_class, choice.mode) == ("path", FALLBACK)
    assert "no class is probable enough" in choice.reason
    halves = {"fact": MIN_PROBABILITY / 2, "comparison": MIN_PROBABILITY / 2, "path": 0.3, "corpus-wide": 0.1}
    assert decided(halves, LOCAL_OR_BRIDGE, {}).mode == "local", "the classes of a mode count together"


def test_a_reason_is_in_words() -> None:
    shown = choose_mode("Who knows a, b, c, d?", ["a", "b", "c", "d"])
    assert shown.reason.startswith("the question names a, b, c and others; its words are who (fact): ")
    assert choose_mode("Tere!", []).reason.startswith("the question names nothing in the index; it has no word ")
    assert shown.words == ("who",)
