"""Reports as a graph of dependencies: communities A and B, of two parts each; a part is a chain of five entities."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa

from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.reports.selection import report_outlines
from hirag_dist.execution.stage import Services, Tables
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.report import CHILD_REPORTS, EntityLines, RelationLines, WriteReports
from hirag_dist.schemas import COMMUNITIES, ENTITIES, RELATIONS
from hirag_dist.types import ChatReply, ChatRequest, Rejected
from tests.table_rows import filled_table

T = TypeVar("T")
PARTS = ("A1", "A2", "B1", "B2")


def name_of(text: str) -> str:
    """A community shows parts by their reports ("About A1"), a part its entities ("A1-0")."""
    reports = re.findall(r"About ([AB])\d", text)
    return reports[0] if reports else re.findall(r"([AB]\d)-\d", text)[0]


@dataclass
class Chat:
    """A pool that keeps calls waiting until they are released, and notes the order in which they came."""

    held: dict[str, asyncio.Event] = field(default_factory=dict)
    refused: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    prompts: dict[str, str] = field(default_factory=dict)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    unit_replies: None = None

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        text = request.messages[1].content
        name = name_of(text)
        async with self.changed:
            self.asked.append(name)
            self.prompts[name] = text
            self.changed.notify_all()
        if name in self.held:
            await self.held[name].wait()
        if name in self.refused:
            return Rejected(request.unit, "refused", 1)
        said = {"title": f"About {name}", "summary": "It is so.", "rating": 1, "findings": []}
        return accept(ChatReply(json.dumps(said)))

    async def until(self, *names: str) -> None:
        async with self.changed:
            await asyncio.wait_for(self.changed.wait_for(lambda: set(names) <= set(self.asked)), 20)


async def material(max_tree: int = 100) -> Tables:
    names = [f"{part}-{at}" for part in PARTS for at in range(5)]
    ends = [(f"{part}-{at}", f"{part}-{at + 1}") for part in PARTS for at in range(4)]
    ends += [("A1-0", "A2-0"), ("B1-0", "B2-0"), ("A1-0", "B1-0")]
    named = ({"entity_id": own, "name": own, "description": "one of five or more words"} for own in sorted(names))
    related = (
        {"relation_id": f"r{at:02d}", "source_id": low, "target_id": high, "description": "next", "weight": 1.0}
        for at, (low, high) in enumerate(ends)
    )
    grouped = (
        {"community_id": own, "level": len(own) - 1, "parent_id": own[0] if own in PARTS else None}
        | {"is_leaf": own in PARTS, "n_entities": 5 if own in PARTS else 10}
        | {"entity_ids": [name for name in names if name.startswith(own)]}
        for own in ("A", "B", *PARTS)
    )
    entities, relations = filled_table(ENTITIES, named), filled_table(RELATIONS, related)
    degrees = np.diff(build_graph(entities["entity_id"], relations).indptr)
    communities = filled_table(COMMUNITIES, grouped)
    outlines = report_outlines(communities, entities["entity_id"], relations, degrees, max_lines=50, max_tree=max_tree)
    services: Services = None  # type: ignore[assignment]
    shown = EntityLines.Inputs.schemas["entities"].names, RelationLines.Inputs.schemas["relations"].names
    lines = (
        await EntityLines(480).run({"places": outlines.entities, "entities": entities.select(shown[0])}, services),
        await RelationLines(480).run({"places": outlines.relations, "relations": relations.select(shown[1])}, services),
    )
    texts = {"entities": lines[0]["lines"], "relations": lines[1]["lines"]}
    return {"outlines": outlines.below, "above": outlines.above} | texts


async def written(chat: Chat, tables: Tables) -> Tables:
    stage = WriteReports(
        structured=True,
        max_tokens=150,
        min_entities=4,
        tokenizer="words",
        packing=PackingOptions(0),
        same_language=False,
        prompts=Prompts(),
        models=("scripted",),
    )
    services = Services(chat, None, None, None, lambda text: len(text.split()))  # type: ignore[arg-type]
    return await stage.run({"children": CHILD_REPORTS.empty_table()} | tables, services)


async def test_a_report_is_asked_for_when_its_own_parts_are_there() -> None:
    chat = Chat(held={"A1": asyncio.Event()})
    task = asyncio.ensure_future(written(chat, await material()))
    await chat.until("B")
    assert sorted(chat.asked) == ["A1", "A2", "B", "B1", "B2"]
    chat.held["A1"].set()
    found = await task
    assert chat.asked[-1] == "A"
    assert sorted(found["reports"]["title"].to_pylist()) == [f"About {name}" for name in sorted(["A", "B", *PARTS])]
    assert "About A1: It is so." in chat.prompts["A"]


async def test_a_dead_report_leaves_its_members_to_the_one_above() -> None:
    chat = Chat(refused=("A1",))
    found = await written(chat, await material())
    assert found["rejects"]["unit_id"].to_pylist() == ["A1"]
    assert "A1" not in found["reports"]["community_id"].to_pylist()
    assert "About A1" not in chat.prompts["A"]
    assert "A1-0" in chat.prompts["A"]
    assert "About A2" in chat.prompts["A"]


async def test_communities_above_their_trees_are_written_after_them_and_alike() -> None:
    together = await written(Chat(), await material())
    tables = await material(max_tree=1)
    assert tables["above"]["community_id"].to_pylist() == ["A", "B"]
    first = await written(Chat(), tables)
    assert sorted(first["as_children"]["community_id"].to_pylist()) == list(PARTS)
    chat = Chat()
    second = await written(chat, tables | {"outlines": tables["above"], "children": first["as_children"]})
    assert sorted(chat.asked) == ["A", "B"]
    reports = pa.concat_tables([first["reports"], second["reports"]])
    assert reports.sort_by("community_id").equals(together["reports"].sort_by("community_id"))
    assert second["as_children"].num_rows == together["as_children"].num_rows == 0
