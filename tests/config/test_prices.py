"""Prices of endpoints."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.config.model import EndpointConfig


def endpoint(model: str = "m", **price: Any) -> EndpointConfig:
    return EndpointConfig.model_validate({"base_url": "http://127.0.0.1:1/v1", "model": model, "price": price})


@pytest.mark.parametrize(
    ("price", "prices"),
    [
        ({}, None),
        ({"cached": 1}, None),
        ({"input": 0}, (0, 0, 0)),
        ({"input": 2, "output": 8}, (2, 2, 8)),
        ({"input": 2, "cached": 0.5, "output": 8}, (2, 0.5, 8)),
        ({"output": 8}, (0, 0, 8)),
    ],
)
def test_a_price_is_known_where_input_or_output_is_given(price: dict[str, float], prices: Any) -> None:
    assert endpoint(**price).prices == prices


def test_a_built_in_model_is_free() -> None:
    assert EndpointConfig(kind="extractive").prices == (0, 0, 0)
    rehearsal = EndpointConfig.model_validate({"kind": "extractive", "price": {"input": 1, "output": 2}})
    assert rehearsal.prices == (1, 1, 2)
