"""Estimate of the reports of an index before any call: how many are written, and their tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hirag_dist.config.model import Config

COMMUNITIES_PER_ROOT = 0.55  # times the square root of the entities that Leiden sees
REPORT_IN_PER_ENTITY = 85  # with its relations, up to the prompt's limit
REPORT_OUT = 660
_SIZE_EXPONENT = 0.8  # the largest share s of communities has s ** 0.8 of the tokens; measured on Mix, 0.1 to 0.5


@dataclass(frozen=True)
class ReportEstimate:
    """Reports that a build writes, and those that it leaves out.

    Attributes:
        written, missing: reports.
        tokens_in, tokens_out: of the written ones, without instructions.
        missing_tokens: of writing the missing ones.
    """

    written: float
    tokens_in: float
    tokens_out: float
    missing: float
    missing_tokens: float


def estimate_reports(entities: float, config: Config) -> ReportEstimate:
    """Return the reports of a graph of so many entities of all layers, by `communities.report_share`."""
    communities, tokens = _communities(entities, config)
    share = config.communities.report_share
    of_tokens = share**_SIZE_EXPONENT
    written, out = communities * share, communities * REPORT_OUT
    missing = tokens * (1 - of_tokens) + out * (1 - of_tokens)
    return ReportEstimate(written, tokens * of_tokens, out * of_tokens, communities - written, missing)


def _communities(entities: float, config: Config) -> tuple[float, float]:
    """Return communities of all levels and the tokens of their material."""
    largest, limit = config.communities.max_size, config.communities.report_tokens
    total = tokens = 0.0
    n_here, inside = 1.0, entities  # so many groups of so many entities each are parted
    while n_here >= 0.5 and inside > 1:
        parts = max(1.0, COMMUNITIES_PER_ROOT * math.sqrt(inside))
        size = inside / parts
        total += n_here * parts
        tokens += n_here * parts * min(size * REPORT_IN_PER_ENTITY, 0.85 * limit)
        if parts == 1.0:
            break
        # sizes differ: where the mean is a quarter of the limit few are above it, above the limit nearly all
        n_here, inside = n_here * parts * min(max(size / largest - 0.25, 0.0), 1.0), size
    return total, tokens
