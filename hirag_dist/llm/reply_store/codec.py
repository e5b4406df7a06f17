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


def part_record_of(pack: Mapping[str, Any], key: str, text: str, usage: list[int]) -> dict[str, Any]:
    """Return the ledger record of a unit's part of a pack's reply.

    Args:
        pack: the record of the whole reply; `key` is its ledger key.
        usage: the part's share of the input, cached and output tokens.
    """
    return dict(pack) | {"text": text, "finish_reason": "stop", "usage": usage, "pack": key}


def reply_from(record: Mapping[str, Any]) -> ChatReply:
    """Return the reply of a record."""
    tokens = record["usage"]
    return ChatReply(record["text"], record["finish_reason"], record["model"], tokens[0], tokens[1], tokens[2])
