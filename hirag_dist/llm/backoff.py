"""Exponential backoff with jitter between attempts."""

from __future__ import annotations

import random

_MAX_BACKOFF_S = 60.0


def backoff_s(failures: int) -> float:
    """Return the pause after so many failures, with jitter.

    >>> 0.25 <= backoff_s(0) <= 0.75 and backoff_s(100) <= 90.0
    True
    """
    return float(min(0.5 * 2.0 ** min(failures, 10), _MAX_BACKOFF_S) * (0.5 + random.random()))
