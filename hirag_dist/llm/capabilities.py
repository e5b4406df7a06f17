"""Probe of structured outputs: whether a model keeps to a JSON schema, asked once per index."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import ClassVar, Protocol, cast, runtime_checkable

from hirag_dist.llm.call import Call, CallContext, CallReply, PricedModel, finish_if_sent
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import record_of, reply_from
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply

_TOKENS = 60  # of the probe, approximately
_MAX_INPUT_TOKENS = 200  # of its prompt and schema, however the endpoint counts a schema


@runtime_checkable
class Capabilities(Protocol):
    """A model that can be probed for structured outputs.

    Attributes:
        probed: its reply to the probe.
        refused_keywords: keywords of JSON schemas that its endpoint was found to refuse.
    """

    probed: ChatReply | None
    refused_keywords: frozenset[str]

    async def supports_forms(self) -> bool:
        """Return whether the model keeps to schemas."""
        ...


@dataclass(frozen=True, slots=True)
class _Probe:
    """The result of a probe: whether the model keeps to schemas, its reply if it gave one, and refused keywords."""

    structured: bool
    reply: ChatReply | None
    refused_keywords: frozenset[str]


ProbeCall = Call[None, _Probe]


@dataclass(frozen=True, slots=True)
class _ProbeTarget:
    """A model that is probed. Implements `llm.call.CallTarget`."""

    operation: ClassVar[str] = "chat"
    model: PricedModel

    @property
    def endpoint(self) -> str:
        return self.model.endpoint

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def weight(self) -> float:
        return 1.0

    def max_use(self, call: ProbeCall) -> tuple[int, float]:
        return self.model.max_use(call)

    async def ping(self, call: ProbeCall) -> bool:
        return await self.model.ping(call)

    async def send(self, call: ProbeCall) -> CallReply[_Probe]:
        """Send the small call and count its cost."""
        prober = cast(Capabilities, self.model.model)
        structured = await prober.supports_forms()
        reply = prober.probed or ChatReply("")
        usd = self.model.cost(reply)
        if prober.probed is not None:
            self.model.count(call.context.meter, call.role, reply, usd)
        tokens = reply.input_tokens + reply.output_tokens
        return CallReply(_Probe(structured, prober.probed, prober.refused_keywords), self.endpoint, tokens, usd)


async def probe_structured_output(
    target: PricedModel, ledger: Ledger | None, retried: RetriedCalls, meter: UsageMeter
) -> bool:
    """Return whether a model has structured outputs.

    Raises:
        ModelError: its endpoint cannot be reached for longer than the outage time-out, or refuses access.
        BudgetReached: the call could pass a spending limit.
    """
    key = hashlib.sha256(f"forms|{target.endpoint}|{target.name}|{target.settings}".encode()).hexdigest()[:40]
    record = None if ledger is None else await ledger.get(key)
    if record is not None and "forms" in record:
        reply = reply_from(record["reply"]) if isinstance(record.get("reply"), dict) else None
        if reply is not None:
            target.count(meter, "probe", reply, target.cost(reply), from_ledger=True)
        refused = record.get("without")
        if isinstance(refused, list):
            cast(Capabilities, target.model).refused_keywords |= frozenset(map(str, refused))
        return bool(record["forms"])
    call = ProbeCall(None, [_ProbeTarget(target)], "probe", _TOKENS, _MAX_INPUT_TOKENS, context=CallContext(meter))
    answered = await finish_if_sent(call, _store_probe(call, key, ledger, retried))
    return answered.value.structured


async def _store_probe(call: ProbeCall, key: str, ledger: Ledger | None, retried: RetriedCalls) -> CallReply[_Probe]:
    answered = await retried(call)
    probe = answered.value
    if ledger is not None:
        reply = {} if probe.reply is None else {"reply": record_of(probe.reply, answered.endpoint)}
        await ledger.put(key, {"forms": probe.structured, "without": sorted(probe.refused_keywords)} | reply)
    return answered
