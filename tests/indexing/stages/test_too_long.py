"""Clusters and descriptions that are longer than the model's window are asked for in parts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from hirag_dist.core.entities.merging import SEPARATOR
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.merge import DescribeEntities
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.llm.rule_based.model import ExtractiveModel
from hirag_dist.schemas import ENTITIES
from hirag_dist.types import ChatReply, ChatRequest, Rejected

T = TypeVar("T")


@dataclass
class SmallWindow:
    """The built-in model, behind a window for so many characters of text."""

    n_chars: int
    answered: list[str] = field(default_factory=list)
    unit_replies: None = None

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        text = request.messages[1].content
        if len(text) > self.n_chars:
            return Rejected(request.unit, "window 512 tokens", 1, too_long=True)
        self.answered.append(text)
        return accept(await ExtractiveModel(len).complete(request))


def services(chat: SmallWindow) -> Services:
    return Services(chat, None, None, None, len)  # type: ignore[arg-type]


async def test_a_cluster_is_summarised_in_parts_that_cover_all_of_its_members() -> None:
    names = [f"Honey bee {word}" for word in ["queen", "drone", "worker", "larva", "comb", "hive", "swarm", "nectar"]]
    cluster = {
        "cluster_id": "c",
        "member_ids": names,
        "names": names,
        "types": ["animal"] * 8,
        "descriptions": [f"The {name.lower()} lives in a honey bee colony." for name in names],
    }
    chat = SmallWindow(250)
    stage = SummariseClusters(1, True, ("animal",), PackingOptions(9000, 8), False, Prompts(), ())
    found = await stage.run({"members": pa.Table.from_pylist([cluster], CLUSTER_MEMBERS)}, services(chat))
    (row,) = found["summaries"].to_pylist()
    assert len(chat.answered) == 4
    assert not found["rejects"].num_rows
    assert {cover["member"] for cover in row["covers"]} == set(range(8))
    for cover in row["covers"]:  # a member is covered by a summary of its own part, which names it
        assert names[cover["member"]] in row["entities"][cover["entity"]]["description"]


async def test_a_description_is_written_from_the_descriptions_of_parts() -> None:
    pieces = [f"The bridge of arch number {at} was built of grey stone in {1800 + at}." for at in range(16)]
    entity = {"entity_id": "e", "layer": 0, "name": "Bridge", "type": "place", "description": SEPARATOR.join(pieces)}
    entity |= {"chunk_ids": ["c"], "homonym": None}
    table = pa.Table.from_pylist([{name: entity.get(name) for name in ENTITIES.names}], ENTITIES)
    chat = SmallWindow(700)
    found = await DescribeEntities(300, 100_000, "", Prompts(), ()).run({"entities": table}, services(chat))
    assert len(chat.answered) > 1
    assert not found["rejects"].num_rows
    assert SEPARATOR not in found["entities"]["description"].to_pylist()[0]
