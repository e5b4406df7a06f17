from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.indexing.extraction_estimate import QUOTED_PER_TOKEN, ExtractionCalls, extraction_calls


def calls(**extraction: Any) -> ExtractionCalls | None:
    return extraction_calls(100, 100_000, Config.model_validate({"extraction": extraction}), Prompts(), len)


def test_each_method_takes_its_share_of_the_calls() -> None:
    llm, skeleton = calls(), calls(method="skeleton", skeleton={"share": 0.25})
    assert llm is not None
    assert skeleton is not None
    assert (llm.calls, skeleton.calls) == (100, 25)
    assert skeleton.input_tokens == llm.input_tokens / 4
    assert skeleton.output_tokens == llm.output_tokens / 4
    assert calls(method="nlp") is None
    verify = calls(method="verify", verify={"pack_tokens": 5 * 810})
    whole = calls(method="verify", verify={"pack_tokens": 5 * 1220, "text": "whole"})
    assert verify is not None
    assert whole is not None
    assert verify.calls == whole.calls == 20
    assert verify.input_tokens + verify.output_tokens < 0.5 * (llm.input_tokens + llm.output_tokens)
    assert whole.input_tokens - verify.input_tokens == pytest.approx((1 - QUOTED_PER_TOKEN) * 100_000)
    assert whole.output_tokens == verify.output_tokens
    alone = calls(method="verify", verify={"pack_tokens": 0})
    assert alone is not None
    assert alone.calls == 100
    twice = calls(calls="two_step")
    assert twice is not None
    assert twice.calls == 200
