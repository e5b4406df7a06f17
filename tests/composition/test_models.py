"""Endpoints and roles from the configuration."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.composition.embedder_choice import settle_embedder
from hirag_dist.composition.models import lexical_embedding_notice
from hirag_dist.config.model import Config

CHAT = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}


@pytest.mark.parametrize(
    ("roles", "noticed"),
    [
        ({}, False),
        ({"answer": "chat"}, False),  # builds nothing
        ({"extract": "chat"}, True),
        ({"extract": "chat", "embed": "builtin-embedder"}, False),
        ({"extract": "chat", "embed": "vectors"}, False),
    ],
)
def test_texts_that_no_endpoint_embeds_are_noticed(roles: dict[str, Any], noticed: bool) -> None:
    endpoints = {"chat": CHAT, "vectors": CHAT | {"dim": 8}}
    config = Config.model_validate({"llm": {"endpoints": endpoints, "roles": roles}})
    notice = lexical_embedding_notice(settle_embedder(config, None))
    assert ("llm.roles.embed" in notice) is noticed
    assert bool(notice) is noticed
