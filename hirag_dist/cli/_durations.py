"""Durations on the command line."""

from __future__ import annotations

import re

from hirag_dist.errors import ConfigError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smhdw])", re.ASCII)


def seconds(duration: str, option: str) -> float:
    """Return a duration in seconds.

    Args:
        option: for the message of an error.

    Raises:
        ConfigError: the text is no duration.

    >>> seconds("90m", "--every"), seconds("1.5d", "--every")
    (5400.0, 129600.0)
    """
    found = _DURATION.fullmatch(duration.strip())
    if found is None:
        raise ConfigError(f"{option} takes a number and a unit, such as 30s, 90m, 12h, 1d or 2w, not {duration!r}")
    return float(found[1]) * _UNITS[found[2]]


def about(duration_s: float) -> str:
    """Return a duration as text, in the unit that suits it.

    >>> about(8.2), about(700), about(9000)
    ('8 seconds', '12 minutes', '2.5 hours')
    """
    if duration_s < 90:
        return f"{duration_s:,.0f} seconds"
    return f"{duration_s / 60:,.0f} minutes" if duration_s < 5400 else f"{duration_s / 3600:,.1f} hours"
