"""Whether a model keeps to a JSON schema: asked once an index, within limits, and paid like any other call."""

from __future__ import annotations

import hashlib
from typing import Protocol, cast

from hirag_dist.llm.chat import PricedModel
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.codec import record_of, reply_from
from hirag_dist.llm.retrying import CallCost, CallResult, RetryingClient
from hirag_dist.llm.token_estimate import MOST_REPLY_TOKENS
from hirag_dist.llm.usage import current_meter
from hirag_dist.types import ChatReply

_TOKENS = 60  # of the small call, about
_MOST_INPUT_TOKENS = 200  # of its prompt and schema, whatever the endpoint makes of a schema


class Capabilities(Protocol):
    """A model that can be asked whether it keeps to schemas. `probed` is what it replied, if it did."""

    probed: ChatReply | None

    async def supports_forms(self) -> bool:
        """Return whether it does."""
        ...


async def probe_structured_output(target: PricedModel, ledger: Ledger | None, caller: RetryingClient) -> bool:
    """Return whether a model has structured outputs.

    Raises:
        ModelError: its endpoint is out of reach for longer than the patience lasts, or does not let us in.
        BudgetReached: the call could pass a spending limit.
    """
    key = hashlib.sha256(f"forms|{target.endpoint}|{target.name}|{target.settings}".encode()).hexdigest()[:40]
    record = None if ledger is None else await ledger.get(key)
    if record is not None:
        if "reply" in record:
            _count(reply_from(record["reply"]), target, stored=True)
        return bool(record["forms"])
    probed = cast(Capabilities, target.model)

    async def send(target: PricedModel) -> CallResult[bool]:
        forms = await probed.supports_forms()
        reply = probed.probed or ChatReply("")
        if probed.probed is not None:
            _count(reply, target, stored=False)
        return CallResult(forms, reply.input_tokens + reply.output_tokens, target.cost(reply))

    async def store(target: PricedModel, forms: bool) -> None:
        if ledger is not None:
            said = {} if probed.probed is None else {"reply": record_of(probed.probed, target.endpoint)}
            await ledger.put(key, {"forms": forms} | said)

    def need(target: PricedModel) -> CallCost:
        most = ChatReply(
            "", input_tokens=_MOST_INPUT_TOKENS, output_tokens=target.max_reply_tokens or MOST_REPLY_TOKENS
        )
        return CallCost(_TOKENS, most.input_tokens + most.output_tokens, target.cost(most))

    _, forms = await caller.call([target], send, store, need, "probe")
    return forms


def _count(reply: ChatReply, target: PricedModel, stored: bool) -> None:
    meter = current_meter.get()
    if meter is not None:
        meter.count("probe", reply.model or target.name, target.endpoint, reply, target.cost(reply), stored)
