"""Spending limit of a run: US dollars and tokens that are spent, or reserved for calls in flight."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hirag_dist.errors import BudgetReached

RAISE_LIMIT = "raise it and run again to go on from here"  # advice of the error, for runs that store replies


def out_of_usd(max_usd: float, spent: float, next_call: float, advice: str = RAISE_LIMIT) -> BudgetReached:
    """Return the error for a call that could pass --max-usd."""
    return BudgetReached(
        f"stopped before --max-usd {max_usd:g} was passed (${spent:.4f} spent or set aside by this run, the next call "
        f"may cost ${next_call:.4f}); {advice}"
    )


def out_of_tokens(max_tokens: int, spent: int, next_call: int, advice: str = RAISE_LIMIT) -> BudgetReached:
    """Return the error for a call that could pass --max-tokens."""
    return BudgetReached(
        f"stopped before --max-tokens {max_tokens} was passed ({spent} used or set aside by this run, the next call "
        f"may use {next_call}); {advice}"
    )


@dataclass(frozen=True, slots=True)
class SpendingLimit:
    """The limits of one run; None is no limit.

    Attributes:
        advice: advice of the error when a limit is reached.
    """

    max_usd: float | None = None
    max_tokens: int | None = None
    advice: str = RAISE_LIMIT

    @property
    def is_set(self) -> bool:
        """True if the run has a limit."""
        return self.max_usd is not None or self.max_tokens is not None

    def left(self, tokens: int, usd: float) -> tuple[float, float]:
        """Return the (tokens, US dollars) that are left after so much was spent or reserved."""
        return (
            math.inf if self.max_tokens is None else self.max_tokens - tokens,
            math.inf if self.max_usd is None else self.max_usd - usd,
        )

    def refusal(self, tokens: int, usd: float, next_tokens: int, next_usd: float) -> BudgetReached | None:
        """Return the error for a next call after so much was spent or reserved; None if the call fits."""
        if self.max_usd is not None and usd + next_usd > self.max_usd:
            return out_of_usd(self.max_usd, usd, next_usd, self.advice)
        if self.max_tokens is not None and tokens + next_tokens > self.max_tokens:
            return out_of_tokens(self.max_tokens, tokens, next_tokens, self.advice)
        return None
