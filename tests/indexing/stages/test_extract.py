"""Chunks → mentions: a chunk that is too long for the model is read in halves."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.types import ChatReply, ChatRequest, Rejected

T = TypeVar("T")
TEXT = " ".join(f"Person{at} met Person{at + 1} on a long and windy road." for at in range(24))


@dataclass
class SmallWindow:
    """A pool that refuses texts of more characters than its window has room for, and one name altogether."""

    n_chars: int
    refused: str = "none"
    read: list[str] = field(default_factory=list)

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        text = request.messages[1].content.removeprefix("<text>\n").removesuffix("\n</text>")
        if len(text) > self.n_chars or self.refused in text:
            return Rejected(request.unit, "window 512 tokens", 1, too_long=True)
        self.read.append(text)
        name = next(word for word in text.split() if word.startswith("Person"))
        return accept(ChatReply(f"1|{name}|person|Met another.\n2|Road|location|Long."))


async def extract(chat: SmallWindow) -> dict[str, pa.Table]:
    stage = ExtractGraph("joint", False, 0, ("person",), False, Prompts(), ())
    chunks = pa.table({"chunk_id": ["c"], "text": [TEXT]})
    return await stage.run({"chunks": chunks}, Services(chat, None, None, None, len))  # type: ignore[arg-type]


async def test_a_chunk_that_is_too_long_is_read_in_halves_and_stays_one_chunk() -> None:
    chat = SmallWindow(len(TEXT) // 3)
    found = await extract(chat)
    assert "".join(chat.read) == TEXT.strip() or " ".join(part.strip() for part in chat.read) == TEXT
    assert len(chat.read) == 4
    assert all(part.strip().endswith(".") for part in chat.read)
    assert set(found["mentions"]["chunk_id"].to_pylist()) == {"c"}
    assert found["mentions"]["name"].to_pylist().count("Road") == 4
    assert not found["rejects"].num_rows


async def test_the_smallest_part_that_is_still_too_long_leaves_one_dead_letter_and_the_rest_is_kept() -> None:
    chat = SmallWindow(len(TEXT) // 3, refused="Person23 ")
    found = await extract(chat)
    assert found["mentions"].num_rows
    assert found["rejects"]["unit_id"].to_pylist() == ["c"]
    assert "window 512 tokens" in found["rejects"]["reason"].to_pylist()[0]
