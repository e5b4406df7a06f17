"""Dates and times as microseconds since 1970-01-01 UTC, and the texts that name them."""

from __future__ import annotations

import re
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import NamedTuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY_US = 86_400_000_000
_LAST = datetime.max.replace(tzinfo=UTC)
ISO = re.compile(
    r"(\d{4})(?:-(\d{2})(?:-(\d{2})(?:[T ](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?(Z|[+-]\d{2}:?\d{2})?)?)?)?",
    re.ASCII,
)
_PDF = re.compile(r"D:(\d{4})(\d{2})?(\d{2})?(\d{2})?(\d{2})?(\d{2})?(Z|[+-]\d{2}'?\d{2})?'?(?:00'?)?", re.ASCII)
_MAIL = re.compile(r"(?:[A-Za-z]{3}, *)?\d{1,2} [A-Za-z]{3} \d{4} \d{1,2}:\d{2}")


class Period(NamedTuple):
    """The time that a text names, as precisely as it does: from `start` up to `end`, which is not part of it."""

    start: int
    end: int


def parse_period(text: str) -> Period:
    """Return the time that an ISO 8601 text names: a year, a month, a day, or a time, by default in UTC.

    >>> [value // 86_400_000_000 for value in parse_period("1970-02")]
    [31, 59]

    Raises:
        ValueError: it is no date or time.
    """
    found = ISO.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{_shown(text)} is no date: write ISO 8601, such as 2024-01-31 or 2024-01-31T12:00:00Z")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    try:
        start = _moment(year, month, day, hour, minute, second, fraction, zone)
        if hour is not None:
            unit = timedelta(microseconds=1) if fraction else timedelta(seconds=1) if second else timedelta(minutes=1)
            return Period(start, start + unit // _MICROSECOND)
        if day is not None:
            return Period(start, start + _DAY_US)
        after = (int(year) + 1, 1) if month is None else (int(year) + int(month) // 12, int(month) % 12 + 1)
        end = microseconds(_LAST) + 1 if after[0] > MAXYEAR else microseconds(datetime(*after, 1, tzinfo=UTC))
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(text)} is no date: there is no such day or time") from None
    return Period(start, end)


def parse_moment(text: str) -> int:
    """Return the beginning of the time that a text names: ISO 8601, a date of a PDF, or one of an e-mail.

    Raises:
        ValueError: it is no date or time.
    """
    text = text.strip()
    pdf = _PDF.fullmatch(text)
    try:
        if pdf is not None:
            year, month, day, hour, minute, second, zone = pdf.groups()
            return _moment(year, month, day, hour, minute, second, None, zone and zone.replace("'", ""))
        if _MAIL.match(text):
            return microseconds(parsedate_to_datetime(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{_shown(text)} is no date: there is no such day or time") from None
    return parse_period(text).start


def microseconds(moment: date) -> int:
    """Return a date or time as microseconds; a time without a zone is in UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def date_text(value: int) -> str:
    """Return a time as ISO 8601: a day where it is the beginning of one.

    >>> date_text(0), date_text(86_400_000_000 + 1_000_000)
    ('1970-01-01', '1970-01-02T00:00:01Z')
    """
    moment = _EPOCH + timedelta(microseconds=value)
    if value % _DAY_US == 0:
        return moment.date().isoformat()
    return moment.replace(tzinfo=None).isoformat() + "Z"


def _moment(
    year: str,
    month: str | None,
    day: str | None,
    hour: str | None,
    minute: str | None,
    second: str | None,
    fraction: str | None,
    zone: str | None,
) -> int:
    moment = datetime(
        int(year),
        int(month or 1),
        int(day or 1),
        int(hour or 0),
        int(minute or 0),
        int(second or 0),
        int((fraction or "0").ljust(6, "0")[:6]),
        tzinfo=UTC,
    )
    value = microseconds(moment)
    if zone and zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[-2:])
        offset = timedelta(hours=hours, minutes=minutes) // _MICROSECOND
        value -= offset if zone[0] == "+" else -offset
    if not microseconds(datetime.min.replace(tzinfo=UTC)) <= value <= microseconds(_LAST):
        raise ValueError(value)
    return value


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:59] + "…")
