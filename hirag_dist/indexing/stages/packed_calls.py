"""Units that share a call: asked together, read one by one, and asked again alone; or stand-ins for them, by rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Generic, TypeVar

from hirag_dist.core.prompts.packing import approximate_tokens, packs, split_reply
from hirag_dist.core.prompts.reply_validation import MalformedReply
from hirag_dist.core.prompts.templates import pack_request
from hirag_dist.errors import RequestRejected
from hirag_dist.execution.stage import Services, gather_calls
from hirag_dist.llm.call import request_hash
from hirag_dist.llm.chat import PackingPool, UnitReplyStore
from hirag_dist.llm.rule_based import reply_to
from hirag_dist.types import ChatReply, ChatRequest, Message, Rejected

T = TypeVar("T")
MAX_UNITS = 8  # that share a call: a model loses count of more


@dataclass(frozen=True, slots=True)
class PackableUnit(Generic[T]):
    """One unit's call, as it would be asked alone, and how its reply is read (raises MalformedReply).

    Attributes:
        divided: Returns the units that are asked instead, each with less of the material, where the whole does not fit
            into the model's window; empty where it cannot be less.
        joined: Makes one result of theirs.
    """

    request: ChatRequest
    parse: Callable[[ChatReply], T]
    divided: Callable[[], Sequence[PackableUnit[T]]] = tuple
    joined: Callable[[Sequence[T]], T] = itemgetter(0)


@dataclass(frozen=True)
class PackingOptions:
    """Limits of a shared call: about `max_tokens` in total, and at most `max_units` units."""

    max_tokens: int
    max_units: int = MAX_UNITS

    @property
    def enabled(self) -> bool:
        """False if no units share calls; a reply that a model gave while it saw other units is not used then either."""
        return self.max_tokens > 0


async def ask_packed(
    units: Sequence[PackableUnit[T]], packing: PackingOptions, task: str, system: Message, services: Services
) -> list[T | Rejected]:
    """Return the parsed reply of each unit in order, or a `Rejected` after its last attempt.

    Units whose reply is in the ledger, alone or as a part of another pack, are not asked; the rest are packed. A pack
    is asked once, in two halves where it does not fit into the model's window. What cannot be read in its reply is
    asked again unit by unit, through each unit's own request: a reply that was refused or cut off for the sake of one
    unit costs the others one call each, while asking the same pack again would most likely fail as it did, and cost
    all of it.
    """
    sizes = [approximate_tokens(unit.request.messages[1].content) for unit in units]

    def group(some: Sequence[int]) -> list[list[int]]:
        found = packs([sizes[at] for at in some], packing.max_tokens, packing.max_units)
        return [[some[place] for place in each] for each in found]

    limits = f"{packing.max_tokens} tokens, {packing.max_units} units"
    return await _PackedCalls(units, group, packing.enabled, limits, task, system, services.chat).results()


async def ask_pack(
    units: Sequence[PackableUnit[T]], task: str, system: Message, services: Services, *, packing: PackingOptions
) -> list[T | Rejected]:
    """Return the parsed replies of units that were packed for one call, as `ask_packed` does.

    Args:
        packing: the options that they were packed by; the call may have grown beyond them since.
    """

    def group(some: Sequence[int]) -> list[list[int]]:
        return [list(some)] if some else []

    return await _PackedCalls(units, group, packing.enabled, "one call", task, system, services.chat).results()


@dataclass(frozen=True)
class _Found(Generic[T]):
    """The result of a lookup: which units are asked together, and the results of those that are not asked."""

    groups: list[list[int]]
    results: dict[int, T]
    is_stored: frozenset[int] = frozenset()


@dataclass(frozen=True)
class _PackedCalls(Generic[T]):
    """The calls for a list of units.

    How the units were grouped is stored before the first call, since it depends on what the ledger holds then: a run
    that is killed goes on with the same packs, and a later one finds them and counts the same use.

    Attributes:
        group: units (positions) → those that share each call.
        packing: whether calls are shared, and so parts of earlier replies used.
        limits: of a call, as text; a grouping by other limits is another one.
    """

    units: Sequence[PackableUnit[T]]
    group: Callable[[Sequence[int]], list[list[int]]]
    packing: bool
    limits: str
    task: str
    system: Message
    chat: PackingPool

    async def results(self) -> list[T | Rejected]:
        everything = range(len(self.units))
        store = self.chat.unit_replies
        if store is None or not self.packing or not self.units:
            found: _Found[T] = _Found(self.group(everything), {})
        else:
            found = await self._find(store)
        asked = await gather_calls(self._ask(group, found.is_stored) for group in found.groups)
        results: dict[int, T | Rejected] = dict(found.results)
        for group, replies in zip(found.groups, asked, strict=True):
            results.update(zip(group, replies, strict=True))
        return [results[at] for at in everything]

    async def _find(self, store: UnitReplyStore) -> _Found[T]:
        """Return the units to ask, grouped, and the results of the others, whose use is counted.

        A pack whose whole reply is stored is taken as it is: that counts what its parts do not, a reply without a
        readable part for one, and finds the packs of versions that kept neither parts nor groupings.
        """
        requests = [unit.request for unit in self.units]
        hashes = "\n".join(map(request_hash, requests))
        messages = (self.system, Message("user", hashes))
        key = ChatRequest(requests[0].role, messages, "", form=f"grouping: {self.limits}")
        stored, *own = await store.find([key, *requests])
        planned = self.group(range(len(own))) if stored is None else json.loads(stored.reply.text)
        is_whole = await self._are_stored(store, planned) if any(own) else [False] * len(planned)
        groups: list[list[int]] = []
        for group, whole in zip(planned, is_whole, strict=True):
            if whole:
                groups.append(group)
            elif stored is not None:  # a request that was refused, or a reply that was removed from the ledger
                groups.append([at for at in group if own[at] is None])
        groups = [group for group in groups if group]
        done = {at for group in groups for at in group}
        results: dict[int, T] = {}
        alone: list[list[int]] = []
        rest, used = [], []
        for at, (unit, reply) in enumerate(zip(self.units, own, strict=True)):
            if at in done:
                continue
            if reply is None:
                rest.append(at)
            elif not reply.pack:
                alone.append([at])
            elif isinstance(read := _parse(unit.parse, reply.reply), MalformedReply):
                rest.append(at)
            else:
                results[at] = read
                used.append(reply)
        groups += self.group(rest)
        if stored is None and groups and len(own) > 1:
            await store.store_grouping(key, json.dumps(groups))
        if used:
            store.count(requests[0].role, used)
        is_stored = frozenset(at for at, reply in enumerate(own) if reply is not None and reply.pack)
        return _Found(groups + alone, results, is_stored)

    async def _are_stored(self, store: UnitReplyStore, groups: Sequence[Sequence[int]]) -> list[bool]:
        """Return for each group whether the ledger has a reply to its pack."""
        stored = await store.find([self._pack_request(group) for group in groups])
        return [reply is not None and len(group) > 1 for group, reply in zip(groups, stored, strict=True)]

    def _pack_request(self, group: Sequence[int]) -> ChatRequest:
        return pack_request(self.task, [self.units[at].request for at in group], self.system)

    async def _ask(self, group: Sequence[int], is_stored: frozenset[int]) -> list[T | Rejected]:
        """Return the results of units that share a call; a unit whose part cannot be parsed is asked alone."""
        units = [self.units[at] for at in group]
        if len(units) == 1:
            return [await self._ask_alone(units[0])]
        request = self._pack_request(group)
        texts: dict[int, str] = {}

        def accept(reply: ChatReply) -> list[T | MalformedReply]:
            parts = split_reply(reply, len(units))
            texts.update((at, part.text) for at, part in enumerate(parts) if isinstance(part, ChatReply))
            return [_parse(unit.parse, part) for unit, part in zip(units, parts, strict=True)]

        together = await self.chat.ask(request, accept)
        if isinstance(together, Rejected) and together.too_long:
            middle = len(group) // 2
            halves = await gather_calls(self._ask(half, is_stored) for half in (group[:middle], group[middle:]))
            return [result for half in halves for result in half]
        read: Sequence[T | MalformedReply | Rejected]
        read = [together] * len(units) if isinstance(together, Rejected) else together
        failed = [at for at, each in enumerate(read) if isinstance(each, MalformedReply | Rejected)]
        good = [at for at in range(len(units)) if at not in failed]
        store = self.chat.unit_replies
        if store is not None and not is_stored.issuperset(group[at] for at in good):
            await store.store(request, [(units[at].request, texts[at]) for at in good])
        again = await gather_calls(self._ask_alone(units[at]) for at in failed)
        alone = dict(zip(failed, again, strict=True))
        return [alone[at] if isinstance(each, MalformedReply | Rejected) else each for at, each in enumerate(read)]

    async def _ask_alone(self, unit: PackableUnit[T]) -> T | Rejected:
        """Return the result of a unit's own call, or of calls with less of the material each where it is too long."""
        result = await self.chat.ask(unit.request, unit.parse)
        if not isinstance(result, Rejected) or not result.too_long:
            return result
        results: list[T] = []
        for part in unit.divided():
            found = await self._ask_alone(part)
            if isinstance(found, Rejected):
                return replace(result, reply=found.reply, reason=found.reason)
            results.append(found)
        return unit.joined(results) if results else result


def _parse(parse: Callable[[ChatReply], T], part: ChatReply | MalformedReply) -> T | MalformedReply:
    if isinstance(part, MalformedReply):
        return part
    try:
        return parse(part)
    except MalformedReply as refusal:
        return refusal


def stand_ins(units: Sequence[PackableUnit[T]]) -> list[T | Rejected]:
    """Return the parsed stand-in of each unit's reply; `Rejected` where the rules give none that can be read."""
    found: list[T | Rejected] = []
    for unit in units:
        request = unit.request
        try:
            found.append(unit.parse(ChatReply(reply_to(request.messages, request.form))))
        except (MalformedReply, RequestRejected) as error:
            found.append(Rejected(request.unit, str(error), 1, request.text, ""))
    return found
