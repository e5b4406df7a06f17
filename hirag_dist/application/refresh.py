"""A refresh whose spending limits choose what is written, instead of stopping the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from hirag_dist.application.index_result import IndexResult
from hirag_dist.application.indexing import BuildOptions, run_refresh
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError
from hirag_dist.protocols import EventListener
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

_WRITING_ROLES = ("summarise", "report")
_CHAT_ROLES = (*_WRITING_ROLES, "extract")


def refresh_within(
    index_uri: str,
    config: Config,
    options: BuildOptions,
    listeners: Sequence[EventListener] = (),
    all_reports: bool = False,
) -> IndexResult:
    """Write the texts that are due and fit the limits of `options`, about: the oldest and most stale first.

    Args:
        all_reports: write reports too that `communities.report_share` leaves out.

    Raises:
        ConfigError: a limit in dollars is given, and no price of the replies is known.
        HiragError: see `application.indexing.run_refresh`.
    """
    limits = [] if options.max_tokens is None else [options.max_tokens]
    if options.max_usd is not None:
        limits.append(tokens_for(index_uri, options.max_usd))
    without = replace(options, max_usd=None, max_tokens=None)
    return run_refresh(index_uri, config, without, listeners, min(limits, default=None), all_reports)


def tokens_for(index_uri: str, usd: float) -> int:
    """Return the tokens of summaries and reports that an amount pays, at the price that the last build paid.

    Raises:
        ConfigError: the last build had no reply, or they cost nothing, or their price is not known.
        SnapshotNotFound: nothing is published.
    """
    usage = open_snapshot(Store(index_uri)).table("usage", ["role", "input_tokens", "output_tokens", "cost_usd"])
    chat = [row for row in usage.to_pylist() if row["role"] in _CHAT_ROLES]
    rows = [row for row in chat if row["role"] in _WRITING_ROLES] or chat
    tokens = sum(row["input_tokens"] + row["output_tokens"] for row in rows)
    cost = sum(row["cost_usd"] for row in rows)
    if not tokens or not cost or math.isnan(cost):
        raise ConfigError(
            f"the last build of {index_uri} has no replies with a price, so dollars cannot be turned into tokens: "
            "limit the refresh in tokens (--max-tokens)"
        )
    return int(usd / cost * tokens)
