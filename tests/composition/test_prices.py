"""A limit in dollars is refused where a price is not known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hirag_dist.api.index import open_index
from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.composition.models import check_prices
from hirag_dist.config.model import Config
from hirag_dist.errors import ConfigError
from tests.toy_builds import Bench

FREE = {"base_url": "http://127.0.0.1:1/v1", "model": "local", "price": {"input": 0}}


def config(roles: dict[str, str], **price: Any) -> Config:
    unpriced = {"base_url": "http://127.0.0.1:1/v1", "model": "gpt-4o-mini", "price": price}
    endpoints = {"big": unpriced, "free": FREE, "builtin-embedder": {"kind": "hashing", "dim": 32}}
    return Config.model_validate({"llm": {"endpoints": endpoints, "roles": roles}})


def test_it_names_the_endpoint_and_the_ways_out() -> None:
    with pytest.raises(ConfigError) as raised:
        check_prices(config({"answer": "big"}), ["answer", "embed"], 0.01)
    said = str(raised.value)
    assert said.startswith("a limit in US dollars needs the prices of: big. Set llm.endpoints.big.price.input and ")
    assert "limit tokens instead" in said


def test_without_a_limit_or_a_call_there_need_be_no_price() -> None:
    made = config({"answer": "big", "extract": "free"})
    check_prices(made, ["answer"], None)
    check_prices(made, ["extract", "summarise", "embed"], 0.01)


def test_builds_and_questions_are_refused_before_any_call(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Ada wrote notes.")
    with pytest.raises(ConfigError, match="prices of: big"):
        run_build([str(tmp_path)], str(tmp_path / "new"), config({"extract": "big"}), BuildOptions(max_usd=0.01))
    assert not (tmp_path / "new" / "build.json").exists()
    Bench(tmp_path).build(["alpha beta gamma"])
    with pytest.raises(ConfigError, match="prices of: big"):
        open_index(tmp_path / "index", config=config({"answer": "big"}), max_usd=0.01)
