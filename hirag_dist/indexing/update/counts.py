"""Numbers of texts that an update wrote, kept and put off."""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class TextCounts:
    """Numbers of texts of one kind after an update.

    Attributes:
        written: by a model in this update.
        kept: as they were.
        deferred: due, and put off.
        stand_ins: of the deferred ones, those by rules.
        deferred_tokens: what writing the deferred ones would cost, about.
        missing: reports that the policy of reports leaves to questions.
    """

    written: int = 0
    kept: int = 0
    deferred: int = 0
    stand_ins: int = 0
    deferred_tokens: int = 0
    missing: int = 0

    def __add__(self, other: TextCounts) -> TextCounts:
        pairs = zip(asdict(self).values(), asdict(other).values(), strict=True)
        return TextCounts(*(mine + theirs for mine, theirs in pairs))
