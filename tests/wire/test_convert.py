"""Queries and records → messages → queries and records, and what is refused on the way."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.config.sections import RetrievalConfig
from hirag_dist.errors import InvalidQuery
from hirag_dist.types import (
    Answer,
    Box,
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    Facet,
    IndexInfo,
    MapWork,
    PathItem,
    Place,
    Query,
    Retrieval,
    SourceItem,
    TripleItem,
)
from hirag_dist.wire import convert
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert import query_from_proto, query_to_proto
from hirag_dist.wire.records import MODES, message_fields, message_of, record_of
from tests.service import fakes

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)
SCORE = st.floats(allow_nan=False)
SMALL = st.integers(0, 2**31 - 1)
ENTITY = st.builds(EntityItem, TEXT, TEXT, TEXT, TEXT, SMALL, st.none() | SCORE, TEXT)


def few(item: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(item, max_size=2).map(tuple)


SCALAR = TEXT | st.booleans() | SCORE
METADATA = st.dictionaries(TEXT, SCALAR | few(SCALAR), max_size=2)
SHARE = st.floats(0, 1, width=32)
PLACE = st.builds(
    Place, SMALL, SMALL, TEXT, TEXT, SMALL, TEXT, TEXT, TEXT, SMALL, few(st.builds(Box, *[SHARE] * 4)), TEXT
)
RETRIEVAL = st.builds(
    Retrieval,
    question=TEXT,
    mode=st.sampled_from(list(MODES)),
    snapshot_id=TEXT,
    local=few(ENTITY),
    communities=few(st.builds(CommunityItem, TEXT, SMALL, TEXT, TEXT, SCORE, SMALL, SCORE)),
    key_entities=few(ENTITY),
    paths=few(st.builds(PathItem, TEXT, TEXT, few(TEXT), few(TEXT))),
    triples=few(st.builds(TripleItem, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, SCORE, SCORE)),
    sources=few(st.builds(SourceItem, TEXT, TEXT, TEXT, TEXT, SMALL, SMALL, TEXT, SCORE, METADATA, few(PLACE))),
    context=TEXT,
    context_tokens=SMALL,
    context_refs=st.dictionaries(TEXT, TEXT, max_size=2),
    timings_ms=st.dictionaries(TEXT, SCORE, max_size=2),
    partial=few(TEXT),
    note=TEXT,
    map_work=st.none() | st.builds(MapWork, *[SMALL] * 12),
    claims=few(st.builds(ClaimItem, *[TEXT] * 12)),
)


def to_proto(retrieval: Retrieval, **options: bool) -> pb.Retrieval:
    return message_of(pb.Retrieval, **convert.retrieval_fields(retrieval, **options))


def over_the_wire(message: Any) -> Any:
    return type(message).FromString(message.SerializeToString())


@given(RETRIEVAL)
def test_a_retrieval_comes_back_equal(retrieval: Retrieval) -> None:
    assert record_of(Retrieval, over_the_wire(to_proto(retrieval))) == retrieval


@given(RETRIEVAL, RETRIEVAL, st.booleans(), few(st.builds(Citation, *[TEXT] * 6, few(PLACE))), SMALL)
def test_an_answer_comes_back_equal(
    sent: Retrieval, own: Retrieval, other: bool, citations: tuple[Citation, ...], count: int
) -> None:
    answer = Answer("text", citations, count, own if other else sent, "model", count, count)
    message = convert.answer_to_proto(answer, convert.retrieval_fields(own) if other else None)
    assert convert.answer_from_proto(over_the_wire(message), sent) == answer


def test_an_index_description_comes_back_equal() -> None:
    facets = (
        Facet("published", "date", documents=2, min="2024-01-01", max="2024-02-01T00:00:00Z"),
        Facet("tags", "string", list=True, documents=3, distinct=21, values=(("tax", 3), ("law", 1))),
        Facet("pages", "number"),
        Facet("draft", "bool", documents=1, distinct=1, values=((True, 1),)),
    )
    info: IndexInfo = replace(fakes.INFO, facets=facets, as_of_field="published")
    assert record_of(IndexInfo, over_the_wire(message_of(pb.IndexInfo, **message_fields(info, pb.IndexInfo)))) == info


def test_lone_surrogates_of_a_snapshot_do_not_fail_a_result() -> None:
    half, whole = "half \ud83d", "half \ufffd\ufffd\ufffd"
    place = Place(0, 9, "section", section=half)
    found = replace(
        fakes.WHOLE,
        local=(replace(fakes.LIGHTHOUSE, name=half),),
        sources=(replace(fakes.WHOLE.sources[0], places=(place,)),),
        context_refs={half: "x"},
    )
    answer = replace(fakes.ANSWER, text=half, citations=(Citation("S1", "chunk", "k1", "Log", places=(place,)),))
    back, answered = record_of(Retrieval, to_proto(found)), convert.answer_to_proto(answer)
    assert (back.local[0].name, back.context_refs, back.communities) == (whole, {whole: "x"}, fakes.WHOLE.communities)
    assert (back.sources[0].places[0].section, answered.citations[0].places[0].section) == (whole, whole)
    assert answered.text == whole


def test_names_that_a_later_server_may_send_are_kept_readable() -> None:
    assert convert.level_from_proto(9) == "level 9"
    assert record_of(Retrieval, pb.Retrieval(mode=77)).mode == "mode 77"  # type: ignore[arg-type]


@given(
    st.builds(
        Query,
        question=TEXT.filter(lambda text: bool(text.strip())),
        mode=st.sampled_from(list(MODES)),
        top_n=st.none() | st.integers(1, 2**31 - 1),
        top_m=st.none() | st.integers(1, 99),
        top_c=st.none() | st.integers(1, 99),
        community_level=st.none() | TEXT,
        context_tokens=st.none() | st.integers(200, 999),
        filter=TEXT,
        as_of=TEXT,
    )
)
def test_a_query_comes_back_equal(query: Query) -> None:
    assert query_from_proto(pb.Query.FromString(query_to_proto(query).SerializeToString()), 4) == query


def test_a_query_vector_comes_back_bit_by_bit() -> None:
    vector = np.array([0.1, -1e-30, 3.0], dtype=np.float32)
    back = query_from_proto(query_to_proto(Query("q", vector=vector)), len(vector)).vector
    assert back.dtype == np.float32
    np.testing.assert_array_equal(back, vector)


@pytest.mark.parametrize(
    "vector", [(0.5, 2), [0.5, 2.0], [[0.5, 2]], array("d", [0.5, 2]), np.array([0.5, 2]), np.array([[0.5], [2]])]
)
def test_any_sequence_of_numbers_is_a_query_vector(vector: Any) -> None:
    assert list(query_to_proto(Query("q", vector=vector)).vector) == [0.5, 2.0]


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (pb.Query(question=" \n"), "question must not be blank"),
        (pb.Query(question="q", mode=99), "mode must be one of hirag, .*99"),  # type: ignore[arg-type]
        (pb.Query(question="q", top_n=0), "top_n must be at least 1"),
        (pb.Query(question="q", vector=[1.0, float("nan")]), "vector must hold finite"),
        (pb.Query(question="q", vector=[1.0] * 3), "vector: 3 numbers; this index has 2 dimensions"),
        (pb.Query(question="q", labels=["a"] * 65), "labels must be at most 64, got 65"),
        (pb.Query(question="q", labels=["a" * 1025]), "labels must have at most 1024 characters"),
        (pb.Query(question="q", community_level="9" * 65), "community_level must be leaf"),
        (pb.Query(question="q", filter="a" * 16_385), "filter must have at most 16384 characters, got 16385"),
    ],
)
def test_a_wrong_query_is_refused_by_the_name_of_its_field(message: pb.Query, words: str) -> None:
    with pytest.raises(InvalidQuery, match=f"^{words}"):
        query_from_proto(message, 2)


@pytest.mark.parametrize("name", ["top_n", "top_m", "top_c", "context_tokens"])
def test_a_count_has_the_least_value_of_its_key(name: str) -> None:
    least = RetrievalConfig.model_json_schema()["properties"][name]["minimum"]
    query_to_proto(Query("q", **{name: least}))
    with pytest.raises(InvalidQuery, match=f"{name} must be at least {least}, got {least - 1}"):
        query_to_proto(Query("q", **{name: least - 1}))


NO_VECTORS: list[Any] = [[1.0, float("nan")], (float("inf"),), ["1"], [None], "12", [10**400]]


@pytest.mark.parametrize(
    "query",
    [
        *(Query("q", vector=vector) for vector in NO_VECTORS),
        *(Query("q", mode="fast"), Query("q\ud800"), Query("q", top_n=2**40), Query("q", community_level="\udfff")),
    ],
)
def test_a_client_refuses_what_the_wire_cannot_hold(query: Query) -> None:
    with pytest.raises(InvalidQuery, match=r"^vector must hold finite numbers only" if query.vector else "."):
        query_to_proto(query)
