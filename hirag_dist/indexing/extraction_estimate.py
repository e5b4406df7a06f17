"""Expected calls and tokens of extraction, by method.

The ratios were measured with the built-in model on Mix (644,008 tokens, 576 chunks), as those of `cost_estimate`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hirag_dist.config.model import Config
from hirag_dist.core.prompts.templates import Prompts, extraction_request

OUT_PER_TOKEN = 1.3  # of the text; MIN_OUT at least in each call
MIN_OUT = 150


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
    if config.extraction.method == "nlp":
        return None
    fixed = count(extraction_request("extract-graph", "", prompts, config.entity_types, None).messages[0].content)
    passes = (2 if config.extraction.calls == "two_step" else 1) * (1 + config.gleaning_rounds)
    calls = float(n_chunks * passes)
    # Two steps, or several rounds, write the same records in parts.
    written = max(n_tokens * OUT_PER_TOKEN, calls * MIN_OUT)
    return ExtractionCalls(calls, n_tokens * passes + calls * fixed, written)
