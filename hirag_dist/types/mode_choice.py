"""The choice of a mode for a question, in mode `auto`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

AUTO: Final = "auto"  # the mode that chooses another


@dataclass(frozen=True, slots=True)
class ModeChoice:
    """A mode chosen by the class of a question.

    Attributes:
        mode: chosen.
        question_class: fact, comparison, path or corpus-wide, the most probable one.
        probability: of that class, 0 to 1. Where it is too low the mode is hirag, whatever the class.
        reason: in words.
        words: of the question that show its type, in its order; empty where it has none that is listed.
        features: what the choice is based on, by name.
    """

    mode: str
    question_class: str
    probability: float
    reason: str
    words: tuple[str, ...] = ()
    features: Mapping[str, float] = field(default_factory=dict)
