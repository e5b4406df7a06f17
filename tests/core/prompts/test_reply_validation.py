"""Reasons of refusals that are one, and the configuration key that each points to."""

from __future__ import annotations

import re

import pytest

from hirag_dist.config.model import EndpointConfig
from hirag_dist.core.prompts.reply_validation import _REMEDIES, NOT_SENT, beginning, by_reason, remedy_of


def test_reasons_that_differ_by_names_and_numbers_are_one() -> None:
    groups = by_reason(
        [
            f"{NOT_SENT}the first 8 units were refused",
            f"{NOT_SENT}the first 9 units were refused",
            f"{NOT_SENT}the first 9 units were refused",
            "the reply repeats one line 12 times: ab",
            "the reply is empty",
            "the reply repeats one line 14 times: cd ef",
        ]
    )
    assert list(groups.values()) == [[3, 5], [4], [0, 1, 2]]  # what was not sent is a consequence of the others
    assert next(iter(groups)) == "the reply repeats one line 12 times: ab"


@pytest.mark.parametrize(
    ("reason", "key"),
    [
        ("the reply was cut off at the token limit", "llm.endpoints.a.max_reply_tokens"),
        ("no reply in 3 tries: nothing came in 600 s", "llm.endpoints.a.first_token_timeout_s"),
        ("endpoint a (m) answered 400: the prompt exceeds the context size", "chunk_tokens"),
        ("endpoint a (m) answered 400: unknown field", "llm.endpoints.a.extra_body"),
        ("the reply holds no record in the requested form", "llm.endpoints.a.output: json_schema"),
    ],
)
def test_a_reason_points_to_a_key(reason: str, key: str) -> None:
    assert key in remedy_of(reason, "a")


def test_the_beginning_of_a_long_reply_is_one_line() -> None:
    assert beginning("a\nb  c", 300) == "a b c"
    assert beginning(1000 * "ab\n", 5) == "ab ab…"


def test_every_key_of_an_endpoint_that_is_advised_exists() -> None:
    advised = {key for _, remedy in _REMEDIES for key in re.findall(r"\{endpoint\}\.(\w+)", remedy)}
    assert advised <= EndpointConfig.model_fields.keys()
