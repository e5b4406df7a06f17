"""Reports by share, estimated: what is written and what is missing add up."""

from __future__ import annotations

import pytest

from hirag_dist.config.model import Config
from hirag_dist.indexing.report_estimate import ReportEstimate, estimate_reports


def estimate(share: float) -> ReportEstimate:
    config = Config.model_validate({"communities": {"report_share": share}})
    return estimate_reports(9_700.0, config)


def test_shares_divide_the_same_reports() -> None:
    whole, top, none = estimate(1.0), estimate(0.2), estimate(0.0)
    assert whole.missing == whole.missing_tokens == none.written == none.tokens_in == none.tokens_out == 0
    for found in (whole, top, none):
        assert found.written + found.missing == pytest.approx(whole.written)
        tokens = found.tokens_in + found.tokens_out + found.missing_tokens
        assert tokens == pytest.approx(whole.tokens_in + whole.tokens_out)
    assert 0.2 < top.tokens_in / whole.tokens_in < 0.35  # the largest ones; 0.28 on Mix
