"""Configuration of community reports: which are written with the index, and which by questions."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hirag_dist.config.base import ConfigSection


class ReportsConfig(ConfigSection):
    """Reports that a build writes. The others are missing until a question or a refresh writes them."""

    policy: Literal["all", "top", "on_demand"] = Field(
        "all",
        description="all: a report for every community; top: for the share that questions reach most; on_demand: for "
        "none. Communities below communities.report_min_entities always have one, which takes no call",
    )
    share: float = Field(0.2, gt=0, le=1, description="with top: share of the communities whose reports are written")
    hits: str | None = Field(
        None,
        description="with top: file of past questions' hits, JSON Lines of community_id and hits; its communities come "
        "first. null: by size and place in the hierarchy alone",
    )


class ReportsOnDemandConfig(ConfigSection):
    """Missing reports that an answer may have written. A request has to ask for it, and its caller to be allowed to."""

    enabled: bool = Field(
        False, description="whether an answer may have missing reports written, by a call of llm.roles.report each"
    )
    max_reports: int = Field(3, ge=1, le=100, description="reports written for one question, at most")
    calls_per_minute: float | None = Field(
        30.0, gt=0, description="reports a minute that a process has written; null: no limit"
    )
    usd_per_day: float | None = Field(
        None, gt=0, description="dollars a day (UTC) that a process spends on reports; null: no limit"
    )
    caller_calls_per_minute: float | None = Field(
        10.0, gt=0, description="the same as calls_per_minute, for one caller; null: no limit"
    )
    caller_usd_per_day: float | None = Field(
        None, gt=0, description="the same as usd_per_day, for one caller; null: no limit"
    )
