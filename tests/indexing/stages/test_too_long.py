"""Chunks, clusters and descriptions that are longer than the model's window are asked for in parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa
import pytest

from hirag_dist.core.entities.merging import SEPARATOR
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.merge import DescribeEntities
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.llm.rule_based.model import ExtractiveModel
from hirag_dist.schemas import ENTITIES
from hirag_dist.types import ChatReply, ChatRequest, Rejected
from tests.table_rows import filled_table

T = TypeVar("T")


@dataclass
class SmallWindow:
    """The built-in model, behind a window for so many characters of text; it refuses one name altogether."""

    n_chars: int
    refused: str = "none"
    answered: list[str] = field(default_factory=list)
    unit_replies: None = None

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        text = request.messages[1].content.removeprefix("<text>\n").removesuffix("\n</text>")
        if len(text) > self.n_chars or self.refused in text:
            return Rejected(request.unit, "window 512 tokens", 1, too_long=True)
        self.answered.append(text)
        return accept(await ExtractiveModel(len).complete(request))


def services(chat: SmallWindow, count: Callable[[str], int] = len) -> Services:
    return Services(chat, None, None, None, count)  # type: ignore[arg-type]


async def summarised(
    chat: SmallWindow,
    names: list[str],
    descriptions: list[str],
    count: Callable[[str], int] = len,
    member_tokens: int = 0,
) -> dict[str, pa.Table]:
    """Return the summaries of a cluster, and dead letters."""
    cluster = {"cluster_id": "c", "member_ids": names, "names": names, "types": ["animal"] * len(names)}
    members = pa.Table.from_pylist([cluster | {"descriptions": descriptions}], CLUSTER_MEMBERS)
    packing = PackingOptions(9000, 8)
    stage = SummariseClusters(1, True, ("animal",), packing, False, Prompts(), (), member_tokens=member_tokens)
    return await stage.run({"members": members}, services(chat, count))


async def test_a_cluster_is_summarised_in_parts_that_cover_all_of_its_members() -> None:
    names = [f"Honey bee {word}" for word in ["queen", "drone", "worker", "larva", "comb", "hive", "swarm", "nectar"]]
    chat = SmallWindow(250)
    found = await summarised(chat, names, [f"The {name.lower()} lives in a honey bee colony." for name in names])
    (row,) = found["summaries"].to_pylist()
    assert len(chat.answered) == 4
    assert not found["rejects"].num_rows
    assert {cover["member"] for cover in row["covers"]} == set(range(8))
    for cover in row["covers"]:  # a member is covered by a summary of its own part, which names it
        assert names[cover["member"]] in row["entities"][cover["entity"]]["description"]


async def test_a_description_is_written_from_the_descriptions_of_parts() -> None:
    pieces = [f"The bridge of arch number {at} was built of grey stone in {1800 + at}." for at in range(16)]
    entity = {"entity_id": "e", "layer": 0, "name": "Bridge", "type": "place", "description": SEPARATOR.join(pieces)}
    chat, tables = SmallWindow(700), {"entities": filled_table(ENTITIES, [entity])}
    found = await DescribeEntities(300, 100_000, "", Prompts(), ()).run(tables, services(chat))
    assert len(chat.answered) > 1
    assert not found["rejects"].num_rows
    assert SEPARATOR not in found["entities"]["description"].to_pylist()[0]


TEXT = " ".join(f"Person {at} met Ann Person in London on a long and windy road." for at in range(24))


async def extract(chat: SmallWindow) -> dict[str, pa.Table]:
    stage = ExtractGraph("joint", False, 0, ("person",), False, Prompts(), ())
    return await stage.run({"chunks": pa.table({"chunk_id": ["c"], "text": [TEXT]})}, services(chat))


async def test_a_chunk_that_is_too_long_is_read_in_halves_and_stays_one_chunk() -> None:
    chat = SmallWindow(len(TEXT) // 3)
    found = await extract(chat)
    assert "".join(chat.answered) == TEXT.strip() or " ".join(part.strip() for part in chat.answered) == TEXT
    assert len(chat.answered) == 4
    assert all(part.strip().endswith(".") for part in chat.answered)
    assert set(found["mentions"]["chunk_id"].to_pylist()) == {"c"}
    assert found["mentions"]["name"].to_pylist().count("London") == 4
    assert not found["rejects"].num_rows


async def test_the_smallest_part_that_is_still_too_long_leaves_one_dead_letter_and_the_rest_is_kept() -> None:
    found = await extract(SmallWindow(len(TEXT) // 3, refused="Person 23 "))
    assert found["mentions"].num_rows
    assert found["rejects"]["unit_id"].to_pylist() == ["c"]
    assert "window 512 tokens" in found["rejects"]["reason"].to_pylist()[0]


@pytest.mark.parametrize("text", ["A keeper of a lamp at sea. " * 30, "守灯人在海上看守灯塔。" * 40])
async def test_members_of_a_cluster_are_cut_to_their_tokens_and_each_is_shown(text: str) -> None:
    count, names, chat = counter("o200k_base"), ["Ada", "Babbage", "Engine", "London"], SmallWindow(10**6)
    found = await summarised(chat, names, [text, "short", text, text], count, member_tokens=200)
    assert found["summaries"].num_rows == 1
    (prompt,) = chat.answered
    assert count(prompt) <= 200 + 12  # tokens of the tags
    assert all(name in prompt for name in names)
    assert ": short\n" in prompt
    assert prompt.count("…\n") == 3
