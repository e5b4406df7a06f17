"""Replies of another process that were stored first: they are used, also where they are seen late."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pytest

from hirag_dist.composition.build import make_services
from hirag_dist.composition.models import make_coordinator
from hirag_dist.config.model import Config
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, gather_calls
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Message
from tests.scripted_endpoint import Asked, Endpoint

TEXTS = pa.schema([pa.field("text", pa.string(), nullable=False)])


@dataclass(frozen=True)
class AskTexts:
    """Texts → the replies to them."""

    name: ClassVar[str] = "ask_texts"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(2)

    class Inputs(TableSet):
        texts: Annotated[Dataset, TEXTS]

    class Outputs(TableSet):
        replies: Annotated[Dataset, TEXTS]

    models: tuple[str, ...]

    async def run(self, tables: Tables, services: Services) -> Tables:
        texts = tables["texts"]["text"].to_pylist()
        asked = [ChatRequest("extract", (Message("user", text),), unit="u") for text in texts]
        replies = await gather_calls(services.chat.ask(request, _text) for request in asked)
        return {"replies": pa.table({"text": [str(reply) for reply in replies]}, TEXTS)}


def _text(reply: ChatReply) -> str:
    return reply.text


@pytest.mark.parametrize("after", [0, 2])
def test_a_reply_that_another_process_stored_first_is_used(after: int, tmp_path: Path) -> None:
    """Two requests are in flight when the ledger of another build, with earlier replies to them, comes to light."""
    seen: list[str] = []

    def reply(asked: Asked) -> str:
        seen.append(str(asked.body["messages"][0]["content"]))
        if len(seen) == 5 + after:
            for file in (tmp_path / "first" / "ledger").iterdir():
                shutil.copy(file, tmp_path / "second" / "ledger")
        return f"reply {len(seen)}"

    endpoint = Endpoint(reply)
    settings: dict[str, Any] = {"base_url": endpoint.url, "model": "m", "output": "delimited", "max_concurrent": 2}
    llm = {"endpoints": {"e": settings}, "roles": {"extract": "e"}}
    config = Config.model_validate({"llm": llm, "execution": {"executor": "inline"}})

    def run(name: str) -> list[str]:
        (tmp_path / name / "ledger").mkdir(parents=True)
        store = Store(str(tmp_path / name))
        coordinator = make_coordinator(config)
        executor = InlineExecutor(lambda: make_services(config, store, False, coordinator, ""), 1, coordinator.totals)
        try:
            runner = StageRunner(store, executor, (), 0.0)
            texts = runner.datasets.put("texts", pa.table({"text": ["a", "b", "c", "d"]}, TEXTS))
            made = runner.run(AskTexts(("m",)), "ask", texts=texts)
            return [str(row["text"]) for part in made.replies.parts for row in store.read_table(part.path).to_pylist()]
        finally:
            executor.close()

    try:
        first = run("first")
        second = run("second")
    finally:
        endpoint.close()
    assert first[after:] == second[after:]
    assert not set(first[:after]) & set(second[:after]), "a task that had ended before keeps its replies"
    assert len(seen) == 4 + 2 + after, "what was stored already is not asked again"
