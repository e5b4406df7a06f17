"""Units that share a call: asked together, read one by one, and those that failed asked again alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hirag_dist.core.prompts.packing import approximate_tokens, packs, split_reply
from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.prompts.templates import pack_request
from hirag_dist.execution.stage import Services, gather_calls
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PackableUnit(Generic[T]):
    """One unit's call, as it would be asked alone, and how its reply is read (raises MalformedReply)."""

    request: ChatRequest
    parse: Callable[[ChatReply], T]


@dataclass(frozen=True)
class PackingOptions:
    """Limits of a shared call: about `max_tokens` in total, and at most `max_units` units."""

    max_tokens: int
    max_units: int


async def ask_packed(
    units: Sequence[PackableUnit[T]], packing: PackingOptions, task: str, system: Message, services: Services
) -> list[T | Rejected]:
    """Return the parsed reply of each unit in order, or a `Rejected` after its last attempt.

    A pack is asked once. What cannot be read in its reply is asked again unit by unit, through each unit's own
    request: a reply that was refused or cut off for the sake of one unit costs the others one call each, while asking
    the same pack again would most likely fail as it did, and cost all of it.

    Args:
        system: the packed task's system message.
    """
    groups = packs(
        [approximate_tokens(unit.request.messages[1].content) for unit in units], packing.max_tokens, packing.max_units
    )
    found = await gather_calls(ask_pack([units[at] for at in group], task, system, services) for group in groups)
    return [each for group in found for each in group]


async def ask_pack(
    units: Sequence[PackableUnit[T]], task: str, system: Message, services: Services
) -> list[T | Rejected]:
    """Return the parsed replies of units that share one call; a unit whose part cannot be parsed is asked alone."""
    if len(units) == 1:
        return [await services.chat.ask(units[0].request, units[0].parse)]

    def accept(reply: ChatReply) -> list[T | MalformedReply]:
        parts = zip(units, split_reply(reply, len(units)), strict=True)
        found: list[T | MalformedReply] = [_parse(unit.parse, part) for unit, part in parts]
        return found

    together_read = await services.chat.ask(pack_request(task, [unit.request for unit in units], system), accept)
    read: Sequence[T | MalformedReply | Rejected]
    read = [together_read] * len(units) if isinstance(together_read, Rejected) else together_read
    failed = [at for at, each in enumerate(read) if isinstance(each, MalformedReply | Rejected)]
    again = await gather_calls(services.chat.ask(units[at].request, units[at].parse) for at in failed)
    alone = dict(zip(failed, again, strict=True))
    return [alone[at] if isinstance(each, MalformedReply | Rejected) else each for at, each in enumerate(read)]


def _parse(parse: Callable[[ChatReply], T], part: ChatReply | MalformedReply) -> T | MalformedReply:
    if isinstance(part, MalformedReply):
        return part
    try:
        return parse(part)
    except MalformedReply as refusal:
        return refusal
