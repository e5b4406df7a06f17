"""The replies to units that share calls, kept by unit: a pack of other units finds them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hirag_dist.llm.call import ModelGroup, PricedModel, in_order, ledger_key, part_key
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import part_record_of, record_of, reply_from
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply, ChatRequest, StoredReply

_FIRST = 0  # attempt


class UnitReplyStore:
    """Lookup and storage of units' replies in the ledger. Implements `protocols.UnitReplies`.

    A part of a pack's reply is stored under a hash of the unit's own request and of the model that replied. The shares
    of all parts add up to the tokens of the pack, so a stage that finds the parts counts what the pack used.
    """

    def __init__(self, roles: Mapping[str, list[ModelGroup]], ledger: Ledger, meter: UsageMeter) -> None:
        """Compose it.

        Args:
            roles: role → its models.
            ledger: where the replies are.
            meter: counts the parts that are used.
        """
        self._roles = roles
        self._ledger = ledger
        self._meter = meter

    async def find(self, requests: Sequence[ChatRequest]) -> list[StoredReply | None]:
        """Return the ledger's reply for each request, if there is one, in one lookup; nothing is counted.

        A part of a pack's reply comes before a reply to the first attempt of the request alone.

        Raises:
            StoreError: the ledger cannot be read.
        """
        places = [self._part_places(request) | self._places(request) for request in requests]
        keys = [key for each in places for key in each]
        if not keys:
            return [None] * len(requests)
        records = await self._ledger.get_many(keys)
        return [_first_stored(each, records, request) for each, request in zip(places, requests, strict=True)]

    def count(self, role: str, parts: Iterable[StoredReply]) -> None:
        """Count the parts that a caller uses as replies from the ledger: one for each pack."""
        by_pack: dict[tuple[str, int, str, float], dict[str, ChatReply]] = {}
        for part in parts:  # equal units have one record
            by_pack.setdefault((part.pack, part.model, part.endpoint, part.price), {})[part.key] = part.reply
        for (_, model, endpoint, price), replies in by_pack.items():
            payer = self._roles[role][model].member(endpoint)
            whole = _sum(list(replies.values()))
            payer.count(self._meter, role, whole, payer.cost(whole) * price, from_ledger=True)

    async def store(self, pack: ChatRequest, parts: Sequence[tuple[ChatRequest, str]]) -> None:
        """Store the parts of a pack's reply; return when they are durable.

        Args:
            pack: the request whose reply is in the ledger.
            parts: a unit's own request, and its part of the reply.

        Raises:
            StoreError: the ledger cannot be read or written.
        """
        places = self._places(pack)
        if not parts or not places:
            return
        records = await self._ledger.get_many(list(places))
        key = next((key for key in places if key in records), None)
        whole = None if key is None else reply_from(records[key], sum(len(each.content) for each in pack.messages))
        if key is None or whole is None:
            return  # removed since it was read
        group = self._roles[pack.role][places[key]]
        texts: dict[str, str] = {}
        sizes: dict[str, int] = {}
        for request, text in parts:
            own = part_key(request, group.first)
            texts.setdefault(own, text)
            sizes[own] = sizes.get(own, 0) + max(1, len(request.messages[-1].content))
        weights = list(sizes.values())
        n_fresh = whole.input_tokens - whole.cached_tokens
        totals = (n_fresh, whole.cached_tokens, whole.output_tokens)
        shares = zip(*(divide(total, weights) for total in totals), strict=True)
        await self._ledger.put_many(
            {
                own: part_record_of(records[key], key, text, [fresh + cached, cached, output])
                for (own, text), (fresh, cached, output) in zip(texts.items(), shares, strict=True)
            }
        )

    async def store_grouping(self, request: ChatRequest, grouping: str) -> None:
        """Store how units were grouped into calls, as the reply to a request that is never sent.

        Raises:
            StoreError: the ledger cannot be written.
        """
        for key in list(self._places(request))[:1]:
            await self._ledger.put(key, record_of(ChatReply(grouping), ""))

    def _places(self, request: ChatRequest) -> dict[str, int]:
        """Return the ledger key of the first attempt → number of the model; nothing for built-in models."""
        return {ledger_key(request, model, _FIRST): number for number, model in self._models(request)}

    def _part_places(self, request: ChatRequest) -> dict[str, int]:
        """Return the ledger key of a part → number of the model; nothing for built-in models."""
        return {part_key(request, model): number for number, model in self._models(request)}

    def _models(self, request: ChatRequest) -> list[tuple[int, PricedModel]]:
        """Return the models of a role with their numbers, in the order in which `EndpointPool` asks them."""
        groups = self._roles[request.role]
        ordered = in_order(groups, request)
        return [(groups.index(group), group.first) for group in ordered] if ordered[0].first.paid else []


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """Return whole shares of a number in proportion to weights; the first has the remainder too.

    >>> divide(10, [1, 1, 2])
    [3, 2, 5]
    """
    shares = [total * weight // sum(weights) for weight in weights]
    shares[0] += total - sum(shares)
    return shares


def _first_stored(
    places: Mapping[str, int], records: Mapping[str, Mapping[str, Any]], request: ChatRequest
) -> StoredReply | None:
    n_chars = sum(len(message.content) for message in request.messages)
    for key, model in places.items():
        record = records.get(key)
        reply = None if record is None else reply_from(record, n_chars)
        if record is not None and reply is not None:
            endpoint, price = str(record.get("endpoint", "")), float(record.get("price", 1.0))
            return StoredReply(reply, key, str(record.get("pack", "")), model, endpoint, price)
    return None


def _sum(replies: Sequence[ChatReply]) -> ChatReply:
    """Return a reply of the same model with the tokens of all."""
    return replace(
        replies[0],
        input_tokens=sum(reply.input_tokens for reply in replies),
        cached_tokens=sum(reply.cached_tokens for reply in replies),
        output_tokens=sum(reply.output_tokens for reply in replies),
    )
