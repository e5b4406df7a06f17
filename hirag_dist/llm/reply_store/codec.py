"""Replies as the ledger keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hirag_dist.llm.batch_api import BATCH_PRICE
from hirag_dist.types import ChatReply


def record_of(reply: ChatReply, endpoint: str) -> dict[str, Any]:
    """Return the ledger record of a reply."""
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": [reply.input_tokens, reply.cached_tokens, reply.output_tokens],
        "endpoint": endpoint,
    }


def batch_record_of(reply: ChatReply, endpoint: str, run: str) -> dict[str, Any]:
    """Return the ledger record of a reply from a batch; `run` names the build that submitted the call."""
    return record_of(reply, endpoint) | {"price": BATCH_PRICE, "run": run}


def reply_from(record: Mapping[str, Any]) -> ChatReply:
    """Return the reply of what `record_of` gave."""
    tokens = record["usage"]
    return ChatReply(record["text"], record["finish_reason"], record["model"], tokens[0], tokens[1], tokens[2])
