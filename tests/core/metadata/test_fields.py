"""Values of records, front matter and properties → metadata of the declared types."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.core.metadata.fields import (
    FieldSource,
    WrongValue,
    collect_values,
    date_text,
    microseconds,
    parse_moment,
    parse_period,
    typed_value,
)
from hirag_dist.types import FieldType, MetadataField
from hirag_dist.types.index_info import check_field_name

DAYS = st.dates(date(1, 1, 2), date(9999, 12, 30))
MOMENTS = st.builds(datetime.combine, DAYS, st.times(), st.just(UTC))


@given(MOMENTS)
def test_a_time_comes_back_from_its_text(moment: datetime) -> None:
    value = microseconds(moment)
    assert parse_moment(date_text(value)) == value
    assert date_text(value).startswith(moment.isoformat()[:10])


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


@pytest.mark.parametrize(
    ("kind", "given", "value"),
    [
        ("string", " Zu\u0308rich ", "Zürich"),
        ("number", "7", 7),
        ("date", datetime.fromisoformat("2024-01-31T12:00"), "2024-01-31T12:00:00Z"),
        ("bool", "No", False),
        ("string", ["one"], "one"),
        ("string", "", None),
    ],
)
def test_a_value_takes_the_type_of_its_field(kind: FieldType, given: object, value: object) -> None:
    found = typed_value(MetadataField("field", kind), given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "given", "words"),
    [
        ("string", True, "no string"),
        ("string", ["a", "b"], "2 values; declare it as a list"),
        ("number", "many", "no number"),
        ("date", "soon", "no date"),
    ],
)
def test_a_value_of_another_type_is_refused(kind: FieldType, given: object, words: str) -> None:
    with pytest.raises(WrongValue, match=words):
        typed_value(MetadataField("field", kind), given)


@pytest.mark.parametrize(
    ("given", "separator", "values"),
    [
        (["b", "a", "b"], "", ["b", "a"]),
        ('["a", "b"]', "", ["a", "b"]),
        ("a, b", "", ["a, b"]),
        ("a, b,", ",", ["a", "b"]),
        ([None, ""], "", None),
    ],
)
def test_a_list_keeps_each_value_once(given: object, separator: str, values: list[str] | None) -> None:
    assert typed_value(MetadataField("field", "string", list=True), given, separator) == values


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=40)
@example("string", False, [""])
@given(st.sampled_from(["string", "number", "date", "bool"]), st.booleans(), JSON)
def test_a_kept_value_is_kept_again(kind: FieldType, several: bool, given: Any) -> None:
    """The values of a snapshot, JSON of the right type, are read as they are."""
    field = MetadataField("field", kind, several)
    try:
        value = typed_value(field, given)
    except WrongValue:
        return
    assert typed_value(field, value) == value


def test_values_come_from_records_first_then_from_the_path() -> None:
    sources = [
        FieldSource(MetadataField("team", "string"), ("team", "meta.Team"), path="^[^/]+/([^/]+)/"),
        FieldSource(MetadataField("year", "number"), ("year",), path=r"(\d{4})-"),
        FieldSource(MetadataField("kind", "string"), ("kind",), path=r"\.\w+$"),
        FieldSource(MetadataField("pages", "number"), ("pages",)),
    ]
    path = "in/law/2023-a.md"
    assert collect_values(sources, {}, path) == ({"team": "law", "year": 2023, "kind": ".md"}, [])
    record = {"TEAM": " ", "Meta": {"team": "tax"}, "year": 2024, "pages": "many"}
    values, faults = collect_values(sources, record, "a.md")
    assert values == {"team": "tax", "year": 2024, "kind": ".md"}
    assert faults == ["metadata field pages: 'many' is no number"]


@pytest.mark.parametrize("name", ["and", "NOT", "a b", "1a", "a-b", "", "x" * 65])
def test_a_name_that_filters_cannot_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="field"):
        check_field_name(name)
