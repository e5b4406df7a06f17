"""Training of the choice of a mode, on a few questions made up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.mode_choice import FALLBACK, cheapest, class_weights, fit, written
from benchmarks.mode_measures import MODES, Measured
from benchmarks.mode_questions import WORDINGS, half_of
from hirag_dist.core.retrieval import mode_coefficients
from hirag_dist.core.retrieval.mode_choice import CLASSES

QUESTIONS = {
    "fact": "Who came?",
    "comparison": "Do both differ?",
    "path": "Are they related?",
    "corpus-wide": "What are the main themes?",
}


def row(kind: str, name: str = "set", number: int = 0, **figures: tuple[float, float]) -> Measured:
    given = {mode: figures.get(mode, (1.0, 8000.0)) for mode in MODES}
    found = {mode: {"recall@5": one, "evidence": one, "tokens": tokens} for mode, (one, tokens) in given.items()}
    names = 1 if kind == "fact" else 0 if kind == "corpus-wide" else 2
    return Measured(name, "index", "hashing", kind, "train", f"{QUESTIONS[kind]} {number}", names, found, {})


def test_the_models_and_the_module_that_is_written() -> None:
    trained = fit([row(kind, number=number) for kind in CLASSES for number in range(5)])
    assert [trained.mode(row(kind))[0] for kind in CLASSES] == list(CLASSES)
    made: dict[str, Any] = {}
    exec(written(trained, ["set"]), made)
    assert made["CLASS_MODES"] == trained.class_modes
    assert (made["BY_WORDS"], made["BY_NAMES"]) == trained.models
    assert set(made) >= {"CLASS_MODES", "BY_WORDS", "BY_NAMES"} <= set(vars(mode_coefficients))


def test_the_cheapest_mode_that_loses_no_evidence() -> None:
    figures = {"local": (1.0, 3000.0), "global": (0.9, 2000.0), "nobridge": (1.0, 5000.0), "lean": (0.5, 1000.0)}
    assert cheapest([row("fact", **figures)], "fact") == "local"
    assert cheapest([row("corpus-wide", **figures)], "corpus-wide") == "nobridge", "it has reports"
    about_equal = {"local": (1.0, 3000.0), "bridge": (1.0, 3050.0), "global": (1.1, 3100.0)}
    assert cheapest([row("fact", **about_equal)], "fact") == "global", "it has more evidence for as many tokens"
    assert cheapest([], "fact") == FALLBACK


def test_classes_count_alike_and_large_sets_less() -> None:
    rows = [row("fact", "large", number) for number in range(9)] + [row("fact", "small")] + [row("path")]
    weights = class_weights(rows)
    assert weights[:10].sum() == pytest.approx(weights[10])
    assert weights[:9].sum() == pytest.approx(3 * weights[9])
    assert np.ptp(weights[:9]) == 0


def test_halves_are_of_texts() -> None:
    assert {half_of(wording) for wording in WORDINGS} == {"train", "test"}
    assert half_of("Who came?") == half_of("Who came?")
