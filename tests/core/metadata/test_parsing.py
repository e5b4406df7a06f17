"""Texts → filter expressions, and the documents that meet them, against a slow reading of the same conditions."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.metadata.columns import FieldColumn, facets, matching_documents
from hirag_dist.core.metadata.fields import And, FieldComparison, IsMissing, Not, OneOf, Or, Prefix, microseconds
from hirag_dist.core.metadata.parsing import MAX_DEPTH, FilterError, as_of_filter, parse_filter
from hirag_dist.types import Facet, MetadataField

FIELDS = (
    MetadataField("published", "date"),
    MetadataField("source", "string"),
    MetadataField("draft", "bool"),
    MetadataField("tags", "string", list=True),
    MetadataField("pages", "number"),
)
Document = Mapping[str, Any]
WORDS = st.sampled_from(["a", "ab", "b", "Ä", 'q"', "it's", "\\", "日本"])
DAYS = st.dates(date(2023, 12, 30), date(2024, 1, 3))
DOCUMENTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "published": DAYS,
            "source": WORDS,
            "draft": st.booleans(),
            "tags": st.lists(WORDS, min_size=1, max_size=3, unique=True),
            "pages": st.integers(-2, 2) | st.just(0.5),
        },
    ),
    max_size=8,
)


def columns_of(documents: list[Document]) -> dict[str, FieldColumn]:
    found = {}
    for field in FIELDS:
        given = [document.get(field.name) for document in documents]
        lists = [value if isinstance(value, list) else [] if value is None else [value] for value in given]
        flat = [value for each in lists for value in each]
        strings: list[str] = []
        if field.type == "string":
            strings = sorted(set(flat))
            flat = [strings.index(value) for value in flat]
        elif field.type == "date":
            flat = [microseconds(value) for value in flat]
        kind = {"number": np.float64, "date": np.int64, "string": np.int32, "bool": np.int8}[field.type]
        indptr = np.concatenate([[0], np.cumsum([len(each) for each in lists])]).astype(np.int64)
        found[field.name] = FieldColumn(field, indptr, np.array(flat, kind), strings)
    return found


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


COMPARED: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@st.composite
def conditions(draw: st.DrawFn) -> tuple[str, Any]:
    """An expression, and a function from a document to whether it meets it."""
    kind = draw(st.integers(0, 7))
    if kind < 3:
        name, values = (("published", DAYS), ("source", WORDS), ("pages", st.integers(-2, 2)))[kind]
        value, sign = draw(values), draw(st.sampled_from(list(COMPARED)))
        text = f"{name} {sign} {quoted(value) if name == 'source' else value}"
        return text, lambda document: COMPARED[sign](document[name], value) if name in document else sign == "!="
    if kind == 3:
        return "draft", lambda document: document.get("draft", False)
    if kind == 4:
        words = draw(st.lists(WORDS, min_size=1, max_size=3))
        every = draw(st.booleans())
        text = f"tags has {'all' if every else 'any'} ({', '.join(map(quoted, words))})"
        return text, lambda document: (all if every else any)(word in document.get("tags", ()) for word in words)
    if kind == 5:
        name = draw(st.sampled_from([field.name for field in FIELDS]))
        return f"{name} is not missing", lambda document: name in document
    if kind == 6:
        words = draw(st.lists(WORDS, min_size=1, max_size=3))
        return f"source not in ({','.join(map(quoted, words))})", lambda document: document.get("source") not in words
    word = draw(WORDS)
    return f"source starts with {quoted(word)}", lambda document: document.get("source", "").startswith(word)


def joined(inner: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    def pair(word: str, one: tuple[str, Any], other: tuple[str, Any]) -> tuple[str, Any]:
        text = f"({one[0]}) {word} ({other[0]})"
        if word == "and":
            return text, lambda document: one[1](document) and other[1](document)
        return text, lambda document: one[1](document) or other[1](document)

    negated = inner.map(lambda one: (f"not ({one[0]})", lambda document: not one[1](document)))
    return negated | st.builds(pair, st.sampled_from(["and", "or"]), inner, inner)


@settings(deadline=None, max_examples=50)
@given(st.recursive(conditions(), joined, max_leaves=4), DOCUMENTS)
def test_the_documents_that_meet_a_filter_are_those_of_a_slow_reading(
    condition: tuple[str, Any], documents: list[Document]
) -> None:
    text, meets = condition
    found = matching_documents(parse_filter(text, FIELDS), columns_of(documents))
    assert found.tolist() == [bool(meets(document)) for document in documents]


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_refused_at_a_character(text: str) -> None:
    try:
        parse_filter(text, FIELDS)
    except FilterError as error:
        found = re.match(r"character (\d+): ", str(error))
        assert 1 <= int(found[1]) <= len(text) + 1


TOKENS = """published source draft tags pages and or not in has any is missing starts with
( ) , = <= 'a' 2024 2024-01-01 -1.5 true"""


@settings(deadline=None, max_examples=50)
@given(st.lists(st.sampled_from(TOKENS.split()), max_size=12).map(" ".join))
def test_any_words_are_an_expression_or_refused(text: str) -> None:
    try:
        expression = parse_filter(text, FIELDS)
    except FilterError:
        return
    assert parse_filter(f"( {text} )", FIELDS) == expression
    assert matching_documents(expression, columns_of([{}])).shape == (1,)


def test_a_filter_is_read_as_it_is_written() -> None:
    text = """
        published >= 2024-01-01 AND source in ("wiki", 'mail') and not draft
        or source starts with "w" or pages is missing
    """
    found = parse_filter(text, FIELDS)
    assert isinstance(found, Or)
    first, prefix, missing = found.terms
    assert isinstance(first, And)
    assert [type(term) for term in first.terms] == [FieldComparison, OneOf, Not]
    assert prefix == Prefix("source", "w")
    assert missing == IsMissing("pages")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", r"character 1: the name of a field is expected, not the end; the fields are published \(date\)"),
        ("publishd > 2024", "character 1: there is no field 'publishd'; did you mean published"),
        ('pages > "3"', "character 9: .* not with the string '3'"),
        (r'source = "a\n"', "character 12: .* is no escape"),
        ('tags = "a"', "character 6: .* write tags has"),
        ('tags in ("a")', "character 6: .* write tags has any"),
        ('source has "a"', "character 8: .* has one value"),
        ("draft < true", "character 7: .* is true or false"),
        ("draft draft", "character 7: 'draft' is not expected here; join conditions with and"),
        ("tags", "character 5: .* goes on with has, or is missing, not with the end"),
        ("draft & pages = 1", "character 7: '&' is not known; write and"),
        ("published = 2024-02-30", "character 13: '2024-02-30' is no date"),
        ("not " * (MAX_DEPTH + 1) + "draft", "more than 32 parentheses and not"),
        ("pages in (" + ",".join("1" * 1024) + ")", "more than 1024 conditions and values"),
    ],
)
def test_a_wrong_filter_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(FilterError, match=words):
        parse_filter(text, FIELDS)


def test_a_day_in_a_filter_is_the_whole_day() -> None:
    documents = [{"published": date(2024, 1, 1) + timedelta(days=day)} for day in range(3)]
    columns = columns_of(documents)

    def meets(text: str) -> list[bool]:
        return matching_documents(parse_filter(text, FIELDS), columns).tolist()

    assert meets("published = 2024") == [True] * 3
    assert meets("published <= '2024-01-02T00:00:00'") == [True, True, False]
    assert meets("published > 2024-01-01") == [False, True, True]
    assert meets("published < 2024-01-02T12:00Z") == [True, True, False]
    assert matching_documents(as_of_filter("2024-01-02", "published"), columns).tolist() == [True, True, False]
    with pytest.raises(FilterError, match="no date"):
        as_of_filter("yesterday", "published")


def test_facets_count_the_documents_that_are_asked_for() -> None:
    documents: list[Document] = [
        {"published": date(2024, 1, 2), "tags": ["a", "b"], "draft": True, "pages": 3},
        {"published": date(2023, 1, 1), "tags": ["b"], "draft": False},
        {"source": "wiki"},
    ]
    columns = columns_of(documents)
    assert facets(columns.values()) == (
        Facet("published", "date", documents=2, min="2023-01-01", max="2024-01-02"),
        Facet("source", "string", documents=1, distinct=1, values=(("wiki", 1),)),
        Facet("draft", "bool", documents=2, distinct=2, values=((False, 1), (True, 1))),
        Facet("tags", "string", list=True, documents=2, distinct=2, values=(("b", 2), ("a", 1))),
        Facet("pages", "number", documents=1, min=3.0, max=3.0),
    )
    some = facets(columns.values(), np.array([False, True, True]))
    assert [facet.documents for facet in some] == [1, 1, 1, 1, 0]
    assert some[3].values == (("b", 1),)
    assert some[4] == Facet("pages", "number")
