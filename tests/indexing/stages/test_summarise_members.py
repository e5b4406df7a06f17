"""What the prompt of a cluster's summary shows of its members where the model's window is small."""

from __future__ import annotations

import pyarrow as pa
import pytest

from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.text.tokens import counter
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.memberships import CLUSTER_MEMBERS
from hirag_dist.indexing.stages.packed_calls import PackingOptions
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatRequest
from tests.indexing.stages.test_meta_types import Chat

COUNT = counter("o200k_base")
NAMES = ["Ada", "Babbage", "Engine", "London"]


async def shown(text: str, member_tokens: int) -> str:
    """Return the members in the prompt of a cluster whose members have this description."""
    seen: list[str] = []

    def reply(request: ChatRequest) -> str:
        seen.append(request.messages[1].content)
        return reply_to(request.messages, request.form)

    lists = [NAMES, NAMES, ["person"] * 4, [text, "short", text, text]]
    members = pa.table([["c"], *([values] for values in lists)], schema=CLUSTER_MEMBERS)
    stage = SummariseClusters(
        1, False, ("concept",), PackingOptions(0, 1), False, Prompts(), ("m",), member_tokens=member_tokens
    )
    services = Services(Chat(reply), None, None, None, COUNT)  # type: ignore[arg-type]
    found = await stage.run({"members": members}, services)
    assert found["summaries"].num_rows == 1
    return seen[0]


@pytest.mark.parametrize("text", ["A keeper of a lamp at sea. " * 30, "守灯人在海上看守灯塔。" * 40])
async def test_members_are_cut_to_their_tokens_and_each_is_shown(text: str) -> None:
    prompt = await shown(text, member_tokens=200)
    assert COUNT(prompt) <= 200 + 12  # tokens of the tags
    assert all(name in prompt for name in NAMES)
    assert ": short\n" in prompt
    assert prompt.count("…\n") == 3
