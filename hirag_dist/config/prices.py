"""Configuration of the price of a model. Providers change their prices, so none is built in."""

from __future__ import annotations

from pydantic import Field

from hirag_dist.config.base import ConfigSection


class PriceConfig(ConfigSection):
    """Price in US dollars a million tokens. Without `input` and `output` it is not known."""

    input: float | None = Field(None, ge=0, description="Dollars a million input tokens; 0 for a free model")
    cached: float | None = Field(
        None, ge=0, description="Dollars a million input tokens that the provider had cached; null: the price of input"
    )
    output: float | None = Field(
        None, ge=0, description="Dollars a million output tokens; null: 0 where input is given, else not known"
    )
