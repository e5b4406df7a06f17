"""Context windows and prices of a run's models: what servers tell, what an index keeps, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.api.build import build_index, refresh_index
from hirag_dist.api.index import open_index
from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.composition.models import ask_windows, check_prices, role_windows, warn_of_idle_limit
from hirag_dist.config.model import Config
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import ConfigError
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Message
from tests.scripted_endpoint import Asked, Endpoint
from tests.toy_builds import Bench

SAMPLES = Path(__file__).parents[2] / "hirag_dist" / "samples" / "corpus"
DOCUMENTS = ("doyle-five-orange-pips-lone-star.md", "jefferson-1803-louisiana.md")
COUNT = counter("o200k_base")
HISTORY = "Earlier questions:\n" + "\n".join(f"- {'Who sailed on which ship, and why? ' * 8}" for _ in range(3))


def other_count(text: str) -> int:
    """Count as a tokenizer with a small vocabulary does: a fifth more than the local one."""
    return COUNT(text) * 6 // 5


def by_rules(asked: Asked) -> str:
    """Return the built-in model's reply, without the last lines for which the request's limit has no room."""
    messages = tuple(Message(each["role"], each["content"]) for each in asked.body["messages"])
    *lines, end = reply_to(messages, None).splitlines()
    most = asked.body.get("max_tokens", 100_000)
    while lines and other_count("\n".join([*lines, end])) > most:
        lines.pop()
    return "\n".join([*lines, end])


@pytest.fixture
def small() -> Iterator[Endpoint]:
    """Return an endpoint whose window a test sets."""
    endpoint = Endpoint(by_rules, count_tokens=other_count)
    yield endpoint
    endpoint.close()


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    (tmp_path / "corpus").mkdir()
    for name in DOCUMENTS:
        (tmp_path / "corpus" / name).write_text((SAMPLES / name).read_text(encoding="utf-8"), encoding="utf-8")
    return str(tmp_path / "corpus")


def config(server: Endpoint, **keys: Any) -> Config:
    """Return a configuration with all roles at the endpoint."""
    named = {"base_url": server.url, "model": "small", "output": "delimited", "api_key": "k"}
    roles = dict.fromkeys(("extract", "summarise", "report", "answer"), "local")
    endpoints = {"local": named | keys.pop("endpoint", {}), "builtin-embedder": {"kind": "hashing", "dim": 32}}
    return Config.model_validate(
        {"execution": {"executor": "inline"}, "llm": {"endpoints": endpoints, "roles": roles}} | keys
    )


def test_a_build_and_its_answers_fit_the_window(small: Endpoint, corpus: str, tmp_path: Path) -> None:
    small.window = window = 1024
    index = tmp_path / "index"
    result = run_build([corpus], str(index), config(small, resolution={"enabled": True}))
    assert not result.dead_letters
    assert not small.refused
    chunks = open_snapshot(Store(str(index)), result.manifest.snapshot_id).table("chunks", ["n_tokens"])["n_tokens"]
    assert max(chunks.to_pylist()) <= min(window // 3, 1200)
    with open_index(index, config=config(small)) as opened:
        for mode in ("hirag", "naive", "graphrag-global"):
            answer = opened.answer("Who sailed on the Lone Star?", mode=mode)
            assert answer.retrieval.context_refs
            assert answer.retrieval.context_tokens < window // 2 + 200
        assert opened.answer(f"{HISTORY}\nQuestion: Who sailed on the Lone Star?").retrieval.context_refs
    assert "Who sailed on the Lone Star?" in small.asked[-1].between("question")
    assert not small.refused


def test_a_configured_window_is_not_asked_for(small: Endpoint) -> None:
    small.window = 4096
    asked = ask_windows(config(small, endpoint={"context_window": 2048}))
    assert role_windows(asked, ["extract"]) == {"extract": 2048}


def test_an_index_keeps_the_window_that_it_was_begun_with(
    small: Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.txt").write_text(" ".join(f"Ada {n} met Babbage {n} in London." for n in range(200)))
    given, index = [str(tmp_path / "a.txt")], str(tmp_path / "index")
    small.window = 2048
    first = run_build(given, index, config(small))
    n_asked = len(small.asked)
    for window, is_said in ((131_072, False), (1024, True)):
        small.window = window
        with caplog.at_level(logging.WARNING):
            again = run_build(given, index, config(small))
        assert again.snapshot_id == first.snapshot_id
        assert ("--rebuild cuts it anew" in caplog.text) == is_said
    assert len(small.asked) == n_asked
    anew = run_build(given, index, config(small), BuildOptions(rebuild=True))
    assert anew.manifest.counts["chunks"] > first.manifest.counts["chunks"]


def priced(roles: dict[str, str]) -> Config:
    """Return a configuration with an endpoint without a price, and one that costs nothing."""
    nowhere = {"base_url": "http://127.0.0.1:1/v1", "model": "m"}
    endpoints = {"big": nowhere, "free": nowhere | {"price": {"input": 0}}, "builtin-embedder": {"kind": "hashing"}}
    return Config.model_validate({"llm": {"endpoints": endpoints, "roles": roles}})


def test_a_limit_in_tokens_that_limits_nothing_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    for made, limit in ((Config(), None), (priced({"report": "free"}), 5), (Config(), 5)):
        assert not caplog.records
        warn_of_idle_limit(made, ["extract", "report", "embed"], limit)
    assert "the limit of 5 tokens has no effect" in caplog.text


def test_a_limit_in_dollars_needs_the_prices_of_what_is_called(tmp_path: Path) -> None:
    made = priced({"answer": "big", "extract": "free"})
    check_prices(made, ["answer"], None)
    check_prices(made, ["extract", "summarise", "embed"], 0.01)
    with pytest.raises(ConfigError) as raised:
        check_prices(made, ["answer", "embed"], 0.01)
    said = str(raised.value)
    assert said.startswith("a limit in US dollars needs the prices of: big. Set llm.endpoints.big.price.input and ")
    assert "limit tokens instead" in said
    (tmp_path / "a.txt").write_text("Ada wrote notes.")
    with pytest.raises(ConfigError, match="prices of: big"):
        run_build([str(tmp_path)], str(tmp_path / "new"), priced({"extract": "big"}), BuildOptions(max_usd=0.01))
    assert not (tmp_path / "new" / "build.json").exists(), "it is refused before any call"
    Bench(tmp_path).build(["alpha beta gamma"])
    with pytest.raises(ConfigError, match="prices of: big"):
        open_index(tmp_path / "index", config=made, max_usd=0.01)


@pytest.mark.parametrize("limit", [{"max_usd": float("nan")}, {"max_usd": -1.0}, {"max_tokens": -1}])
def test_a_limit_that_is_no_amount_is_refused(limit: dict[str, Any], corpus: str, tmp_path: Path) -> None:
    (name,) = limit
    with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0"):
        build_index(corpus, tmp_path / "index", **limit)
    with pytest.raises(ConfigError, match=f"{name} must be a number of at least 0"):
        refresh_index(tmp_path / "index", **limit)
    assert not (tmp_path / "index" / "current").exists()
