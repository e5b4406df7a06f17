from __future__ import annotations

from typing import Any

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.indexing.extraction_estimate import ExtractionCalls, extraction_calls


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
    verify = calls(method="verify", verify={"pack_tokens": 4 * 1300})
    assert verify is not None
    assert verify.calls == 25
    assert verify.input_tokens + verify.output_tokens < 0.7 * (llm.input_tokens + llm.output_tokens)
    alone = calls(method="verify", verify={"pack_tokens": 0})
    assert alone is not None
    assert alone.calls == 100
    twice = calls(calls="two_step")
    assert twice is not None
    assert twice.calls == 200
