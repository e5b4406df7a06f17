"""Replies in which any field may hold anything: what comes out can be stored, counted and summed, or is refused."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hirag_dist.llm.endpoints.openai_client import retry_after_s
from hirag_dist.llm.endpoints.openai_replies import (
    StreamedParts,
    UnusableField,
    parse_completion,
    parse_usage,
    parse_vectors,
)
from hirag_dist.llm.reply_store.block_format import MAX_TOKENS, pack_value, record_of, reply_from, unpack_value
from hirag_dist.schemas import USAGE
from hirag_dist.types import ChatReply

LONE = "\ud800"
odd_numbers = st.sampled_from([-1, -(10**30), 2**64 - 1, 10**400, 1e308, -0.0, float("inf"), float("nan"), 12.5, 3.0])
odd_texts = st.sampled_from(["", "-5", "12", LONE, f"a{LONE}b", "\udc00\ud800", "\x00", "é" * 300, "1e9"]) | st.text(
    st.characters(), max_size=5
)
scalars = st.none() | st.booleans() | odd_numbers | odd_texts | st.integers()
names = st.sampled_from(
    [
        *("choices", "message", "content", "refusal", "delta", "text", "finish_reason", "model", "usage", "data"),
        *("prompt_tokens", "completion_tokens", "cached_tokens", "prompt_tokens_details", "prompt_cache_hit_tokens"),
        *("index", "embedding"),
    ]
)
anything = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4), max_leaves=8
)
usages = st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": scalars | anything,
        "completion_tokens": scalars | anything,
        "prompt_tokens_details": anything | st.fixed_dictionaries({"cached_tokens": scalars}),
        "prompt_cache_hit_tokens": scalars,
    },
)
messages = st.fixed_dictionaries({}, optional={"content": anything, "refusal": anything})
choices = st.fixed_dictionaries({}, optional={"message": messages | anything, "finish_reason": anything})
bodies = st.fixed_dictionaries(
    {}, optional={"choices": st.lists(choices | anything, max_size=2) | anything, "usage": usages, "model": anything}
)


@given(bodies)
@example({"choices": [{"message": {"content": f"a{LONE}"}}], "usage": {"prompt_tokens": 2**64 - 1}})
@example({"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": -(10**9)}})
@settings(max_examples=40, deadline=None)
def test_whatever_a_completion_holds_the_tables_and_the_ledger_hold(body: dict[str, Any]) -> None:
    try:
        found = parse_completion(body, 40)
    except UnusableField:
        return
    usage = found.usage
    counts = [usage.input_tokens or 0, usage.cached_tokens, usage.output_tokens or 0]
    assert all(0 <= count <= MAX_TOKENS for count in counts)
    assert counts[1] <= counts[0]
    pa.array([found.text, found.finish_reason, found.model], pa.string())
    pa.array([count * 10**6 for count in counts], USAGE.field("input_tokens").type)
    reply = ChatReply(found.text, found.finish_reason, found.model, *counts)
    assert reply_from(unpack_value(pack_value(record_of(reply, "mine")))) == reply


@given(anything)
@settings(max_examples=40, deadline=None)
def test_an_event_of_a_stream_adds_a_text(event: Any) -> None:
    parts = StreamedParts()
    text = parts.add(event if isinstance(event, dict) else {"choices": event})
    text.encode()
    try:
        reply = parts.completion(10)
    except UnusableField:
        assert text == ""
    else:
        assert reply.text == text
        reply.finish_reason.encode()


@given(anything, st.integers(1, 4))
@settings(max_examples=40, deadline=None)
def test_vectors_are_one_for_each_text_or_refused(data: Any, n_texts: int) -> None:
    try:
        vectors = parse_vectors({"data": data}, n_texts)
    except UnusableField:
        return
    assert vectors.shape[0] == n_texts
    assert vectors.dtype == np.float64


@given(
    st.fixed_dictionaries(
        {}, optional={"text": anything, "finish_reason": anything, "model": anything, "usage": anything}
    )
)
@example({"text": f"a{LONE}", "finish_reason": "stop", "model": "m", "usage": [2**64 - 1, 0, 5]})
@example({"text": "a", "finish_reason": "stop", "model": "m", "usage": [10, 20, -5]})
@settings(max_examples=40, deadline=None)
def test_what_is_kept_is_healed_or_counts_as_absent(record: dict[str, Any]) -> None:
    reply = reply_from(record, 400)
    if reply is None:
        assert not all(isinstance(record.get(key), str) for key in ("text", "finish_reason", "model"))
        return
    pa.array([reply.text, reply.finish_reason, reply.model], pa.string())
    assert 0 <= reply.cached_tokens <= reply.input_tokens <= MAX_TOKENS
    assert 0 <= reply.output_tokens <= MAX_TOKENS


@pytest.mark.parametrize(
    ("usage", "counts", "problem"),
    [
        (None, (None, 0, None), ""),
        ({"prompt_tokens": -30000000, "completion_tokens": 3}, (None, 0, 3), "prompt_tokens -30000000"),
        (
            {"prompt_tokens": 11, "prompt_tokens_details": {"cached_tokens": 12}},
            (11, 0, None),
            "cached_tokens 12 of 11",
        ),
        ({"prompt_tokens": 11, "prompt_tokens_details": [8], "prompt_cache_hit_tokens": 8}, (11, 8, None), ""),
        ({"prompt_tokens": "28", "completion_tokens": 3}, (None, 0, 3), "prompt_tokens '28'"),
    ],
)
def test_a_usage_that_cannot_be_true_is_unknown(usage: object, counts: tuple[Any, ...], problem: str) -> None:
    found = parse_usage(usage, 100, 10)
    assert (found.input_tokens, found.cached_tokens, found.output_tokens) == counts
    assert found.problem == problem


def items(*indices: object) -> list[dict[str, Any]]:
    return [{"index": index, "embedding": [float(place), 1.0]} for place, index in enumerate(indices)]


@pytest.mark.parametrize(
    ("counts", "thought", "output"),
    [
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}, 4, (5, 4)),  # thinking within the output
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 516}, 500, (505, 500)),  # beside it
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 516}, None, (505, None)),  # and not named
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 9000}, 20, (25, 20)),  # at most what is named
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 0}, 500, (505, 500)),
        ({"prompt_tokens": 11, "completion_tokens": 5}, 500, (505, 500)),  # without a sum
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}, 500, (5, None)),  # cannot be true
        ({"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 11}, 4, (5, 4)),
    ],
)
def test_thinking_beside_the_output_is_on_the_bill(
    counts: dict[str, int], thought: int | None, output: tuple[int, int | None]
) -> None:
    details = {} if thought is None else {"completion_tokens_details": {"reasoning_tokens": thought}}
    found = parse_usage(counts | details, 20, 10)
    assert (found.output_tokens, found.reasoning_tokens) == output


@pytest.mark.parametrize("indices", [(2, 0, 1), ("2", "0", "1"), (2.0, 0.0, 1.0), ("2", 0, 1.0)])
def test_vectors_go_to_the_texts_that_their_index_names_however_it_is_written(indices: tuple[object, ...]) -> None:
    assert parse_vectors({"data": items(*indices)}, 3)[:, 0].tolist() == [1.0, 2.0, 0.0]


@pytest.mark.parametrize("indices", [(0, 0), (1, 2), (-1, 0), (None, 1), ("a", 1), (0.5, 1), (10**400, 0)])
def test_an_index_that_names_no_text_is_refused(indices: tuple[object, ...]) -> None:
    with pytest.raises(UnusableField, match="index"):
        parse_vectors({"data": items(*indices)}, 2)


def test_numbers_of_a_vector_may_be_strings_and_a_row_may_stand_in_a_list() -> None:
    packed = base64.b64encode(np.array([1.0, 2.0], "<f4").tobytes()).decode()
    for embedding in (["1", "2"], [[1, 2]], packed, [1, 2.0]):
        assert parse_vectors({"data": [{"embedding": embedding}]}, 1).tolist() == [[1.0, 2.0]]


@pytest.mark.parametrize("embedding", ["%%%", "AAA=", "", [], [[]], [[1], [2]], {"a": 1}, ["x"], [10**400], 3])
def test_a_vector_that_cannot_be_read_is_refused(embedding: object) -> None:
    with pytest.raises(UnusableField):
        parse_vectors({"data": [{"embedding": embedding}]}, 1)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("retry-after", "retry-after-ms", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
                *("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
            ]
        ),
        st.sampled_from(
            ["0", "-1", "1e308", "9" * 400, "nan", "Fri, 31 Dec 9999 23:59:59 GMT", "1h" * 100, "9" * 400 + "h"]
        )
        | st.text(max_size=10),
    )
)
@settings(max_examples=50, deadline=None)
def test_no_header_asks_for_more_than_a_day(headers: dict[str, str]) -> None:
    wait_s = retry_after_s(headers, 0.0)
    assert wait_s is None or 0.0 <= wait_s <= 86_400.0
