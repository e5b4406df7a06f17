"""Durations on the command line, read and written."""

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


def duration_text(duration_s: float) -> str:
    """Return a duration for a person, in its two largest units.

    >>> duration_text(0.42), duration_text(59.6), duration_text(72.0), duration_text(9300.0)
    ('0.4 s', '1 min', '1 min 12 s', '2 h 35 min')
    """
    if duration_s < 9.95:
        return f"{duration_s:.1f} s"
    minutes, rest_s = divmod(round(duration_s), 60)
    if not minutes:
        return f"{rest_s} s"
    hours, rest_min = divmod(minutes, 60)
    first, second = (f"{hours} h", f"{rest_min} min") if hours else (f"{minutes} min", f"{rest_s} s")
    return f"{first} {second}" if (rest_min if hours else rest_s) else first


def about(duration_s: float) -> str:
    """Return a duration as text, in the unit that suits it.

    >>> about(8.2), about(700), about(9000)
    ('8 seconds', '12 minutes', '2.5 hours')
    """
    if duration_s < 90:
        return f"{duration_s:,.0f} seconds"
    return f"{duration_s / 60:,.0f} minutes" if duration_s < 5400 else f"{duration_s / 3600:,.1f} hours"
