"""Queries → messages → queries, and what is refused on the way."""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hirag_dist.errors import InvalidQuery
from hirag_dist.types import Query
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert import query_from_proto, query_to_proto
from hirag_dist.wire.records import MODES

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=6)


@given(
    st.builds(
        Query,
        question=TEXT.filter(lambda text: bool(text.strip())),
        mode=st.sampled_from(list(MODES)),
        top_n=st.none() | st.integers(1, 2**31 - 1),
        top_m=st.none() | st.integers(1, 99),
        top_c=st.none() | st.integers(1, 99),
        community_level=st.none() | TEXT,
        context_tokens=st.none() | st.integers(1, 99),
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


@pytest.mark.parametrize("vector", [[1.0, float("nan")], (float("inf"),), ["1"], [None], "12", [10**400]])
def test_what_is_no_finite_number_does_not_leave_the_client(vector: Any) -> None:
    with pytest.raises(InvalidQuery, match=r"^vector must hold finite numbers only"):
        query_to_proto(Query("q", vector=vector))


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


@pytest.mark.parametrize(
    "query", [Query("q", mode="fast"), Query("q\ud800"), Query("q", top_n=2**40), Query("q", community_level="\udfff")]
)
def test_a_client_refuses_what_the_wire_cannot_hold(query: Query) -> None:
    with pytest.raises(InvalidQuery):
        query_to_proto(query)
