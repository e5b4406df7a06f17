"""Values of records, front matter and properties → metadata of the declared types."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.core.metadata.fields import FieldSource, WrongValue, collect_values, typed_value
from hirag_dist.types import FieldType, MetadataField
from hirag_dist.types.index_info import check_field_name


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
