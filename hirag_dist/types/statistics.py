"""An estimate with its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its interval; all NaN where there was nothing to estimate from."""

    value: float
    low: float
    high: float

    @property
    def beyond_zero(self) -> bool:
        """True if zero lies outside the interval."""
        return self.low > 0 or self.high < 0


NOTHING = Interval(float("nan"), float("nan"), float("nan"))
