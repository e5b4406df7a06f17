"""The configuration that `hirag-dist init` writes."""

from __future__ import annotations

import yaml

from hirag_dist.cli.config import template
from hirag_dist.config.model import Config


def test_every_value_of_the_template_is_the_default() -> None:
    written = Config.model_validate(yaml.safe_load(template()))
    assert written.model_dump() == Config().model_dump()
