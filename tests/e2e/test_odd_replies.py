"""Builds whose ledger holds texts that no table can hold, and whose endpoint sends absurd usages and sizes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached
from hirag_dist.llm.reply_store import Ledger, scan_records
from hirag_dist.llm.reply_store.block_format import unpack_value
from hirag_dist.storage.store import Store
from tests.refusing_index import RefusingIndex

NAMES = ("engine.txt", "loom.txt")
LONE = "\ud800"
PRICE = {"input": 10.0, "output": 10.0}


@pytest.fixture
def index(tmp_path: Path) -> Iterator[RefusingIndex]:
    made = RefusingIndex(tmp_path)
    yield made
    made.endpoint.close()


def test_a_ledger_that_was_poisoned_before_is_healed_without_a_call(index: RefusingIndex) -> None:
    built = index.build(*NAMES)
    other = Store(str(index.folder / "other"))

    async def poison() -> None:
        ledger = Ledger(other)
        for record in scan_records(index.store):
            value = unpack_value(record.value)
            if "text" in value:
                value["text"] = value["text"].replace("Engine", f"Engine{LONE}")
                value["usage"] = [2**64 - 1, 0, -7]
            await ledger.put(record.key.hex(), value)
        await ledger.close()

    asyncio.run(poison())
    index.asked.clear()
    healed = run_build(index.files(*NAMES), other.uri, index.config, BuildOptions())
    assert healed.complete
    assert healed.manifest.counts["chunks"] == built.manifest.counts["chunks"]
    first = [asked for asked in index.asked if "<text>" in asked]
    assert first == [], "what is kept is not asked again"


def test_no_usage_defeats_a_spending_limit(index: RefusingIndex) -> None:
    values = index.config.model_dump()
    values["llm"]["endpoints"]["chat"] |= {"price": PRICE, "max_reply_tokens": 500}
    config = Config.model_validate(values)
    index.endpoint.alter = lambda body: {key: value for key, value in body.items() if key != "usage"}
    whole = sum(row["cost_usd"] for row in run_build(index.files(*NAMES), index.uri, config).usage)
    n_calls = len(index.asked)
    for number, tokens in enumerate((-(10**9), 0, "none", 2**70)):
        index.asked.clear()
        usage = {"prompt_tokens": tokens, "completion_tokens": tokens}
        index.endpoint.alter = lambda body, usage=usage: body | {"usage": usage}  # type: ignore[misc]
        uri = str(index.folder / f"index {number}")
        with pytest.raises(BudgetReached):
            run_build(index.files(*NAMES), uri, config, BuildOptions(max_usd=0.7 * whole))
        assert 1 <= len(index.asked) < n_calls


def test_a_reply_that_is_too_large_is_a_dead_letter_with_its_reason(index: RefusingIndex) -> None:
    def alter(body: dict[str, Any]) -> Any:
        is_large = "Jacquard" in body["choices"][0]["message"]["content"]
        return body | ({"pad": "x" * (33 << 20)} if is_large else {})

    index.endpoint.alter = alter
    built = index.build("engine.txt", "loom.txt", "bridge.txt", "train.txt")
    assert not built.complete
    (letter,) = index.letters()
    assert letter["stage"] == "extract"
    assert "answered more than 33,554,432 bytes" in letter["reason"]
    index.endpoint.alter = lambda body: body
    assert index.retry().complete
