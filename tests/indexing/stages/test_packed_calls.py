"""Units asked together: each is read by itself, and what failed is asked again alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import pytest

from hirag_dist.core.prompts.reply_parsing import MalformedReply
from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.packed_calls import PackableUnit, PackingOptions, ask_packed
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")
SYSTEM = Message("system", "Task: summarise-pack")


@dataclass
class Chat:
    """A pool of one try; `say` gives the text of a reply."""

    say: Callable[[ChatRequest], ChatReply | str]
    asked: list[tuple[str, ...]] = field(default_factory=list)
    unit_replies: None = None

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        self.asked.append(request.packed or (request.unit,))
        said = self.say(request)
        reply = ChatReply(said) if isinstance(said, str) else said
        try:
            return accept(reply)
        except MalformedReply as refusal:
            return Rejected(request.unit, str(refusal), 1)


def unit(name: str, content: str = "") -> PackableUnit[str]:
    """A unit whose good reply names it."""

    def parse(reply: ChatReply) -> str:
        if name not in reply.text:
            raise MalformedReply(f"{name} is not there")
        return reply.text

    messages = (Message("system", "alone"), Message("user", content or name))
    return PackableUnit(ChatRequest("summarise", messages, unit=name), parse)


async def ask(chat: Chat, units: list[PackableUnit[str]]) -> list[str | Rejected]:
    services = Services(chat, None, None, None, len)  # type: ignore[arg-type]
    return await ask_packed(units, PackingOptions(1000, 8), "summarise", SYSTEM, services)


def each(request: ChatRequest) -> str:
    return "\n".join(f"unit<|>{at}\n{name}" for at, name in enumerate(request.packed, 1)) or f"{request.unit} alone"


@pytest.mark.parametrize("useless", [ChatReply(""), ChatReply("x", finish_reason="content_filter"), ChatReply("Hm.")])
async def test_a_useless_reply_is_not_asked_for_again_as_a_pack(useless: ChatReply) -> None:
    chat = Chat(lambda request: useless if request.packed else each(request))
    assert await ask(chat, [*map(unit, "abc")]) == ["a alone", "b alone", "c alone"]
    assert chat.asked == [("a", "b", "c"), ("a",), ("b",), ("c",)]


async def test_a_unit_that_fails_alone_too_is_a_dead_letter_of_its_own() -> None:
    chat = Chat(lambda request: each(request).replace("b", "?"))
    result = await ask(chat, [*map(unit, "abc")])
    assert result[0::2] == ["a", "c"]
    assert isinstance(result[1], Rejected)
    assert (result[1].unit, result[1].reason) == ("b", "b is not there")


async def test_a_pack_that_is_too_long_is_halved_and_then_its_unit_is_divided() -> None:
    def part(name: str) -> PackableUnit[str]:
        return replace(
            unit(name), divided=lambda: [part(half) for half in name] if len(name) > 1 else [], joined="".join
        )

    class Small(Chat):
        """A pool whose window has room for two letters."""

        async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
            if sum(map(len, request.packed or (request.unit,))) <= 2 and request.unit != "x":
                return await super().ask(request, accept)
            self.asked.append(request.packed or (request.unit,))
            return Rejected(request.unit, "too long", 1, too_long=True)

    chat = Small(lambda request: each(request).removesuffix(" alone"))
    *found, dead = await ask(chat, [part(name) for name in ("a", "b", "cde", "x")])
    assert found == ["a", "b", "cde"]
    assert isinstance(dead, Rejected)
    assert chat.asked[:3] == [("a", "b", "cde", "x"), ("a", "b"), ("cde", "x")]
