"""Options of uploads from a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from hirag_dist.composition.serving import upload_options
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError

ON = {"http": "127.0.0.1:0", "http_uploads": "docs"}


def config(**service: Any) -> Config:
    return Config.model_validate({"service": service})


def test_limits_and_labels_are_those_of_the_configuration() -> None:
    made = upload_options(config(**ON, anonymous_labels=["public"]), "index")
    assert made is not None
    assert (made.folder, made.index, made.anonymous) == ("docs", "index", frozenset({"public"}))
    assert made.payload not in repr(made)  # it holds keys of endpoints
    made = upload_options(config(**ON, anonymous_labels="all"), "index")
    assert made is not None
    assert made.anonymous is None


@pytest.mark.parametrize(
    ("service", "index", "why"),
    [({"http": None}, "index", "--http"), ({}, "", "--index"), ({}, "s3://bucket/index", "local folder")],
)
def test_what_uploads_need(service: dict[str, Any], index: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        upload_options(config(**(ON | service)), index)
