"""Expected calls and tokens of extraction, by method.

The ratios were measured with the built-in model on Mix (644,008 tokens, 576 chunks), as those of `cost_estimate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.config.model import Config
from hirag_dist.core.entities.skeleton import share_of
from hirag_dist.core.prompts.templates import Prompts, extraction_request

OUT_PER_TOKEN = 2.5  # of the text; MIN_OUT at least in each call
MIN_OUT = 150


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
    if method == "skeleton":
        central = share_of(config.extraction.skeleton.share, n_chunks)
        n_chunks, n_tokens = central, round(n_tokens * central / max(n_chunks, 1))
    fixed = count(extraction_request("extract-graph", "", prompts, config.entity_types, None).messages[0].content)
    passes = (2 if config.extraction.calls == "two_step" else 1) * (1 + config.gleaning_rounds)
    calls = float(n_chunks * passes)
    # Two steps, or several rounds, write the same records in parts.
    written = max(n_tokens * OUT_PER_TOKEN, calls * MIN_OUT)
    return ExtractionCalls(calls, n_tokens * passes + calls * fixed, written)
