"""Hashes of requests: the ledger key of a reply, and the choice of the model that replies."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from hirag_dist.llm.priced_model import ModelGroup, PricedModel, choose_by_weight
from hirag_dist.types import ChatRequest


@lru_cache(maxsize=256)  # used several times during a request
def request_hash(request: ChatRequest) -> str:
    """Return the SHA-256 (hex) of everything that the model sees, and of the replicate number."""
    seen: list[Any] = [
        [(message.role, message.content) for message in request.messages],
        request.form,
        request.hashed_limit,
    ]
    if request.replicate:  # the first replicate keeps the hash of requests without replicates
        seen.append(request.replicate)
    return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def ledger_key(request: ChatRequest, chosen: PricedModel, attempt: int) -> str:
    """Return the ledger key of a reply: a hash of request, model, settings and attempt."""
    return _key(request, chosen, str(attempt))


def part_key(request: ChatRequest, chosen: PricedModel) -> str:
    """Return the ledger key of the part of a pack's reply that is about the unit of a request.

    It differs from that of a reply to the request alone: the model saw the texts of other units too, which may have
    other access labels.
    """
    return _key(request, chosen, "part")


def _key(request: ChatRequest, chosen: PricedModel, kind: str) -> str:
    parts = f"chat|{chosen.model.name}|{chosen.settings}|{request_hash(request)}|{kind}"
    return hashlib.sha256(parts.encode()).hexdigest()[:40]


def in_order(groups: list[ModelGroup], request: ChatRequest) -> list[ModelGroup]:
    """Return the groups of a role: first the one that the request's hash chooses, then its fallbacks."""
    if len(groups) == 1:
        return groups
    first = groups.index(choose_by_weight(groups, request_hash(request)))
    return groups[first:] + groups[:first]
