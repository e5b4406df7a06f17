"""Prices of models: as configured, and list prices of well-known ones for endpoints with `price.list_price`.

Providers change their prices, and resellers have others: the bill of the provider counts, not this table.
"""

from __future__ import annotations

from typing import NamedTuple

from pydantic import Field

from hirag_dist.config.base import ConfigSection

AS_OF = "2025-11"  # the month in which the prices were taken from the providers' lists


class PriceConfig(ConfigSection):
    """US dollars a million tokens. Without `input`, `output` and `list_price` the price is not known."""

    input: float | None = Field(None, ge=0, description="of input tokens; 0 for a free model")
    cached: float | None = Field(None, ge=0, description="of input tokens that the provider had cached; null: as input")
    output: float | None = Field(None, ge=0, description="of output tokens; null: nothing, where input is given")
    list_price: bool = Field(False, description="the price that `hirag-dist config prices` shows for the model")


class ListPrice(NamedTuple):
    """US dollars a million tokens: of input, of input that the provider had cached, of output."""

    input: float
    cached: float
    output: float


LIST_PRICES = {
    "gpt-5.1": ListPrice(1.25, 0.125, 10.0),
    "gpt-5": ListPrice(1.25, 0.125, 10.0),
    "gpt-5-mini": ListPrice(0.25, 0.025, 2.0),
    "gpt-5-nano": ListPrice(0.05, 0.005, 0.4),
    "gpt-4.1": ListPrice(2.0, 0.5, 8.0),
    "gpt-4.1-mini": ListPrice(0.4, 0.1, 1.6),
    "gpt-4.1-nano": ListPrice(0.1, 0.025, 0.4),
    "gpt-4o": ListPrice(2.5, 1.25, 10.0),
    "gpt-4o-mini": ListPrice(0.15, 0.075, 0.6),
    "o3": ListPrice(2.0, 0.5, 8.0),
    "o4-mini": ListPrice(1.1, 0.275, 4.4),
    "text-embedding-3-large": ListPrice(0.13, 0.13, 0.0),
    "text-embedding-3-small": ListPrice(0.02, 0.02, 0.0),
    "text-embedding-ada-002": ListPrice(0.10, 0.10, 0.0),
}
