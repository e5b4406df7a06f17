"""Expected calls and tokens of extraction, by method.

The ratios were measured with the built-in model on Mix (644,008 tokens, 576 chunks), as those of `cost_estimate`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.config.model import Config
from hirag_dist.core.entities.verification import VERIFY_TASK
from hirag_dist.core.prompts.templates import PACKED, Prompts, extraction_request

OUT_PER_TOKEN = 1.3  # of the text; MIN_OUT at least in each call
MIN_OUT = 150
QUOTED_PER_TOKEN = 0.59  # of the text: the sentences that a chunk's check shows
PROPOSED_PER_TOKEN = 0.22  # of the text: the candidates and pairs
CHECKED_PER_TOKEN = 0.34  # of the text: the reply


@dataclass(frozen=True)
class MethodEstimate:
    """One method of extraction: expected calls, tokens and cost of the whole build, and of its extraction.

    Attributes:
        method: value of `extraction.method`.
        configured: whether it is the configured one.
        extraction_calls, extraction_tokens: of the extraction, tokens in and out.
        calls, input_tokens, output_tokens: of all stages.
        cost_usd: US dollars; None where the endpoint's price is not known.
        seconds: as of `CostEstimate`.
    """

    method: str
    configured: bool
    extraction_calls: int
    extraction_tokens: int
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float | None
    seconds: float


@dataclass(frozen=True)
class ExtractionCalls:
    """Calls of the extract model, and their tokens."""

    calls: float
    input_tokens: float
    output_tokens: float


def extraction_calls(
    n_chunks: int, n_tokens: int, config: Config, prompts: Prompts, count: Callable[[str], int]
) -> ExtractionCalls | None:
    """Return the calls that the extraction of chunks takes; None for none.

    Args:
        n_tokens: of all chunks.
        count: text → tokens.
    """
    method = config.extraction.method
    if method == "nlp":
        return None
    if method == "verify":
        return _verification(n_chunks, n_tokens, config, prompts, count)
    if method == "skeleton":
        share = config.extraction.skeleton.share
        n_chunks, n_tokens = max(round(share * n_chunks), 1), round(share * n_tokens)
    fixed = count(extraction_request("extract-graph", "", prompts, config.entity_types, None).messages[0].content)
    passes = (2 if config.extraction.calls == "two_step" else 1) * (1 + config.gleaning_rounds)
    calls = float(n_chunks * passes)
    # Two steps, or several rounds, write the same records in parts.
    written = max(n_tokens * OUT_PER_TOKEN, calls * MIN_OUT)
    return ExtractionCalls(calls, n_tokens * passes + calls * fixed, written)


def _verification(
    n_chunks: int, n_tokens: int, config: Config, prompts: Prompts, count: Callable[[str], int]
) -> ExtractionCalls:
    """Return the calls that check what was found in chunks, which share calls."""
    verify = config.extraction.verify
    shown = n_tokens * ((1.0 if verify.text == "whole" else QUOTED_PER_TOKEN) + PROPOSED_PER_TOKEN)
    per_call = verify.pack_tokens * n_chunks / max(shown, 1.0)
    calls = n_chunks / min(max(math.floor(per_call), 1), config.pack_units)
    task = VERIFY_TASK if per_call < 2 else PACKED[VERIFY_TASK]
    fixed = count(prompts.system(task, None, entity_types=", ".join(config.entity_types)).content)
    return ExtractionCalls(calls, shown + calls * fixed, n_tokens * CHECKED_PER_TOKEN)
