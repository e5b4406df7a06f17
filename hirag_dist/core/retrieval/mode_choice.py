"""Choice of a mode by the class of a question: fact, comparison, path or corpus-wide. No model is called.

A small linear model (multinomial logistic regression) over six features, which are 0 or 1: whether the question holds
one name, and whether it holds several names, of entities that the caller may see; and whether it holds words of each
class (`question_words`). Where it holds no listed word at all, as in a language without a list, a second model over
the names alone decides. Features of the search (similarities, lexical scores, layers, communities) are not among them:
on sets of questions that had no part in the training they make the choice worse (docs/research/mode-choice.md).

Each class has a mode. A mode's probability is the sum of its classes'; where none is probable enough the mode is
`hirag`, which has every level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from hirag_dist.core.retrieval.entity_linking import words
from hirag_dist.core.retrieval.mode_coefficients import BY_NAMES, BY_WORDS, CLASS_MODES
from hirag_dist.core.retrieval.question_words import question_words
from hirag_dist.types import ModeChoice

CLASSES: Final = ("fact", "comparison", "path", "corpus-wide")
NAME_FEATURES: Final = ("one name", "several names")
WORD_FEATURES: Final = tuple(f"words of {name}" for name in CLASSES)
FALLBACK: Final = "hirag"
MIN_PROBABILITY: Final = 0.5  # of a mode, to be chosen
_MEANING: Final = {
    "fact": "a fact",
    "comparison": "a comparison",
    "path": "a connection",
    "corpus-wide": "a broad account, of a subject or of the corpus",
}
_MAX_SHOWN = 3  # names or words in the reason

Coefficients = Mapping[str, Mapping[str, float]]  # class → feature → coefficient


def question_features(question: str, n_names: int) -> tuple[dict[str, float], dict[str, list[str]]]:
    """Return (features, listed words of the question by class).

    Args:
        question: text.
        n_names: different names of visible entities in it.

    >>> question_features("Who wrote it?", 0)[1]
    {'fact': ['who']}
    """
    found = question_words(words(question))
    features = {"one name": float(n_names == 1), "several names": float(n_names > 1)}
    if found:
        features |= {feature: float(name in found) for feature, name in zip(WORD_FEATURES, CLASSES, strict=True)}
    return features, found


def class_probabilities(features: Mapping[str, float], coefficients: Coefficients) -> dict[str, float]:
    """Return the probability of each class: the softmax of its intercept and coefficients."""
    scores = {
        name: own["intercept"] + sum(own[feature] * value for feature, value in features.items())
        for name, own in coefficients.items()
    }
    highest = max(scores.values())
    powers = {name: math.exp(score - highest) for name, score in scores.items()}
    return {name: power / sum(powers.values()) for name, power in powers.items()}


def choose_mode(question: str, names: Sequence[str]) -> ModeChoice:
    """Return the mode for a question.

    Args:
        question: text.
        names: of the entities that it names, as the caller may see them, in its order; equal ones count once.
    """
    different: dict[str, str] = {}
    for name in names:
        different.setdefault(" ".join(words(name)), name)
    features, found = question_features(question, len(different))
    probabilities = class_probabilities(features, BY_WORDS if found else BY_NAMES)
    return decided(probabilities, CLASS_MODES, features, list(different.values()), found)


def decided(
    probabilities: Mapping[str, float],
    class_modes: Mapping[str, str],
    features: Mapping[str, float],
    names: Sequence[str] = (),
    found: Mapping[str, Sequence[str]] | None = None,
) -> ModeChoice:
    """Return the choice that follows from the probabilities of the classes.

    Args:
        probabilities: of each class.
        class_modes: mode of each class.
        features: that they come from.
        names: of entities in the question, in its order.
        found: its listed words, by class.
    """
    found = found or {}
    likely = max(probabilities, key=probabilities.__getitem__)
    of_modes: dict[str, float] = {}
    for name, probability in probabilities.items():
        of_modes[class_modes[name]] = of_modes.get(class_modes[name], 0.0) + probability
    mode = max(of_modes, key=of_modes.__getitem__)
    sure = of_modes[mode] >= MIN_PROBABILITY
    chosen = mode if sure else FALLBACK
    why = [_names_in_words(names), _words_in_words(found)]
    verdict = f"it asks for {_MEANING[likely]} (probability {probabilities[likely]:.2f})"
    if not sure:
        verdict = f"no class is probable enough (the likeliest is {likely}, {probabilities[likely]:.2f})"
    return ModeChoice(
        mode=chosen,
        question_class=likely,
        probability=round(probabilities[likely], 4),
        reason=f"{'; '.join(why)}: {verdict}, so the mode is {chosen}",
        words=tuple(word for name, each in found.items() if name != "other" for word in each),
        features=dict(features),
    )


def _names_in_words(names: Sequence[str]) -> str:
    if not names:
        return "the question names nothing in the index"
    shown = ", ".join(names[:_MAX_SHOWN]) + (" and others" if len(names) > _MAX_SHOWN else "")
    return f"the question names {shown}"


def _words_in_words(found: Mapping[str, Sequence[str]]) -> str:
    each = [f"{', '.join(phrases[:_MAX_SHOWN])} ({name})" for name, phrases in found.items() if name != "other"]
    return f"its words are {', '.join(each)}" if each else "it has no word that shows its type"
