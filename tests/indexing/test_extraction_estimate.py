from __future__ import annotations

from typing import Any

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.indexing.extraction_estimate import ExtractionCalls, extraction_calls


def calls(**extraction: Any) -> ExtractionCalls | None:
    return extraction_calls(100, 100_000, Config.model_validate({"extraction": extraction}), Prompts(), len)


def test_the_calls_of_each_method() -> None:
    joint, twice = calls(), calls(calls="two_step")
    assert joint is not None
    assert twice is not None
    assert (joint.calls, twice.calls) == (100, 200)
    assert calls(method="nlp") is None
