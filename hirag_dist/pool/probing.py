"""Whether a model keeps to a JSON schema: asked once an index, within limits, and paid like any other call."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from hirag_dist.pool.calling import Answered, Caller, Need
from hirag_dist.pool.chat import PricedModel
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.metering import current_meter
from hirag_dist.types import ChatReply

_TOKENS = 60  # of the small call, about


class _Probed(Protocol):
    probed: ChatReply | None

    async def supports_forms(self) -> bool: ...


async def probe_forms(target: PricedModel, ledger: Ledger | None, caller: Caller) -> bool:
    """Return whether a model has structured outputs.

    Raises:
        ModelError: its endpoint is out of reach for longer than the patience lasts, or does not let us in.
    """
    key = hashlib.sha256(f"forms|{target.name}|{target.settings}".encode()).hexdigest()[:40]
    record = None if ledger is None else await ledger.get(key)
    if record is not None:
        return bool(record["forms"])
    model: Any = target.model
    probed: _Probed = model

    async def send(target: PricedModel) -> Answered[bool]:
        forms = await probed.supports_forms()
        reply = probed.probed or ChatReply("")
        meter = current_meter.get()
        if meter is not None and probed.probed is not None:
            name = reply.model or target.name
            meter.count("probe", name, target.endpoint, reply, target.cost(reply), from_ledger=False)
        return Answered(forms, reply.input_tokens + reply.output_tokens, target.cost(reply))

    async def store(target: PricedModel, forms: bool) -> None:
        if ledger is not None:
            await ledger.put(key, {"forms": forms})

    _, forms = await caller.call([target], send, store, lambda target: Need(_TOKENS, _TOKENS, 0.0), "probe")
    return forms
