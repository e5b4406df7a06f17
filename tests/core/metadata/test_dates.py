"""Texts of dates → the time that they name."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.metadata.dates import date_text, microseconds, parse_moment, parse_period

DAYS = st.dates(date(1, 1, 2), date(9999, 12, 30))
MOMENTS = st.builds(datetime.combine, DAYS, st.times(), st.just(UTC))


@settings(deadline=None)
@given(MOMENTS)
def test_a_time_comes_back_from_its_text(moment: datetime) -> None:
    value = microseconds(moment)
    assert parse_moment(date_text(value)) == value
    assert date_text(value).startswith(moment.isoformat()[:10])


@settings(deadline=None)
@given(MOMENTS, st.integers(-14, 14))
def test_a_zone_names_the_same_moment(moment: datetime, hours: int) -> None:
    shifted = moment.astimezone(timezone(timedelta(hours=hours)))
    assert parse_moment(shifted.isoformat()) == microseconds(moment) == microseconds(shifted)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("1970", "1970-01-01", "1970-12-31T23:59:59.999999Z"),
        ("2024-02-29T10:15", "2024-02-29T10:15:00Z", "2024-02-29T10:15:59.999999Z"),
        ("2024-02-29T10:15:07.5+01:00", "2024-02-29T09:15:07.500000Z", "2024-02-29T09:15:07.500000Z"),
    ],
)
def test_a_period_is_as_precise_as_its_text(text: str, first: str, last: str) -> None:
    period = parse_period(text)
    assert (date_text(period.start), date_text(period.end - 1)) == (first, last)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("D:20240131120000+01'00'", "2024-01-31T11:00:00Z"),
        ("Wed, 31 Jan 2024 12:00:00 -0500", "2024-01-31T17:00:00Z"),
        (" 2024-01-31 ", "2024-01-31"),
    ],
)
def test_dates_of_pdfs_and_mails_are_read(text: str, value: str) -> None:
    assert date_text(parse_moment(text)) == value


@pytest.mark.parametrize(
    "text", ["", "soon", "2024-13", "2023-02-29", "24-01-31", "2024-1-31", "2024-01-31T25:00", "0000", "D:20241331"]
)
def test_what_is_no_date_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(ValueError, match="is no date"):
        parse_moment(text)
