"""Builds whose endpoint sends replies that no table can hold, usages that cannot be true, and vectors of no meaning."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hirag_dist.application.build import BuildOptions, run_build
from hirag_dist.config.model import Config
from hirag_dist.errors import BudgetReached
from hirag_dist.llm.reply_store import Ledger, scan_records
from hirag_dist.llm.reply_store.block_format import unpack_value
from hirag_dist.storage.snapshot.reader import open_snapshot
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


def altered(**usage: Any) -> Callable[[dict[str, Any]], Any]:
    """Return a change of bodies: a lone surrogate behind every description, and this usage."""

    def alter(body: dict[str, Any]) -> Any:
        message = body["choices"][0]["message"]
        message["content"] = message["content"].replace(". ", f"{LONE}. ").replace(".\n", f"{LONE}.\n")
        return body | ({"usage": usage} if usage else {})

    return alter


def test_texts_that_no_table_can_hold_and_absurd_counts_end_in_a_snapshot(
    index: RefusingIndex, caplog: pytest.LogCaptureFixture
) -> None:
    index.endpoint.alter = altered(prompt_tokens=2**64 - 1, completion_tokens=-3)
    with caplog.at_level(logging.WARNING, logger="hirag_dist.llm"):
        built = index.build(*NAMES)
    assert built.complete
    assert sum("cannot be true" in record.message for record in caplog.records) >= 1
    assert all(0 < row["input_tokens"] < 10_000 and 0 <= row["output_tokens"] < 10_000 for row in built.usage)
    texts = "".join(open_snapshot(index.store).table("entities")["description"].to_pylist())
    assert LONE not in texts
    n_asked = len(index.asked)
    again = run_build(index.files(*NAMES), str(index.folder / "other"), index.config, BuildOptions())
    assert again.snapshot_id == built.snapshot_id
    assert len(index.asked) == 2 * n_asked


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
