"""Replies as the ledger keeps them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hirag_dist.core.text.normalize import encodable
from hirag_dist.types import ChatReply

MAX_TOKENS = 10_000_000  # of one call: no model has a larger context window
_CHARS_PER_TOKEN = 4  # of English text, about


def record_of(reply: ChatReply, endpoint: str) -> dict[str, Any]:
    """Return the ledger record of a reply."""
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": [reply.input_tokens, reply.cached_tokens, reply.output_tokens],
        "endpoint": endpoint,
    }


def part_record_of(pack: Mapping[str, Any], key: str, text: str, usage: list[int]) -> dict[str, Any]:
    """Return the ledger record of a unit's part of a pack's reply.

    Args:
        pack: the record of the whole reply; `key` is its ledger key.
        usage: the part's share of the input, cached and output tokens.
    """
    return dict(pack) | {"text": text, "finish_reason": "stop", "usage": usage, "pack": key}


def reply_from(record: Mapping[str, Any], n_prompt_chars: int = 0) -> ChatReply | None:
    """Return the reply of a record; None where it cannot be used, so that it counts as absent.

    A text that no table can hold is mended, as replies are before they are stored now, and token counts that cannot be
    true are estimated from the texts.

    Args:
        n_prompt_chars: of the request, for such an estimate.
    """
    text, finish_reason, model = (record.get(key) for key in ("text", "finish_reason", "model"))
    if not (isinstance(text, str) and isinstance(finish_reason, str) and isinstance(model, str)):
        return None
    usage = record.get("usage")
    counts = [token_count(each) for each in usage] if isinstance(usage, list) and len(usage) == 3 else [None] * 3
    n_input, n_cached, n_output = counts
    if n_input is None or n_output is None or n_cached is None or n_cached > n_input:
        n_cached = 0
    return ChatReply(
        encodable(text),
        encodable(finish_reason),
        encodable(model),
        _estimated(n_prompt_chars) if n_input is None else n_input,
        n_cached,
        _estimated(len(text)) if n_output is None else n_output,
    )


def token_count(value: object) -> int | None:
    """Return a count of tokens; None for whatever cannot be one.

    >>> [token_count(each) for each in (12, 12.0, -1, 2**64 - 1, "12", True, None)]
    [12, 12, None, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():  # neither infinity nor NaN
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if usable and isinstance(value, int) else None


def _estimated(n_chars: int) -> int:
    return math.ceil(n_chars / _CHARS_PER_TOKEN)
