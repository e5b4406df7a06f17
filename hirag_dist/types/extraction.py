"""Names found in a text without a language model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FoundName:
    """A name or term that a text holds.

    Attributes:
        type: one of the types that were asked for.
        places: (sentence, word) of each occurrence, in order.
        score: how well it stands out; comparable within one text.
    """

    name: str
    type: str
    places: tuple[tuple[int, int], ...]
    score: float
