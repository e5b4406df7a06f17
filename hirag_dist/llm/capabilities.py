"""What a model can do: whether it keeps to a JSON schema, asked once per index, and how large its window is."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from hirag_dist.errors import ModelError
from hirag_dist.llm.call import Call, CallContext, CallReply, PricedModel, finish_if_sent
from hirag_dist.llm.endpoints.openai_chat import OpenAiChat
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointSettings
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import record_of, reply_from, token_count
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import ChatReply

_TOKENS = 60  # of the probe, approximately
_MAX_INPUT_TOKENS = 200  # of its prompt and schema, however the endpoint counts a schema


ProbeCall = Call[None, bool]


class _ProbeTarget(PricedModel):
    """A model that is sent a probe in place of a request."""

    async def send(self, call: ProbeCall) -> CallReply[bool]:  # type: ignore[override]
        """Send the small call and count its cost; return whether the model keeps to schemas."""
        prober = cast(OpenAiChat, self.model)
        structured = await prober.supports_forms()
        reply = prober.probed or ChatReply("")
        usd = self.cost(reply)
        if prober.probed is not None:
            self.count(call.context.meter, call.role, reply, usd)
        tokens = reply.input_tokens + reply.output_tokens
        return CallReply(structured, self.endpoint, tokens, usd)


async def probe_structured_output(
    target: PricedModel, ledger: Ledger | None, retried: RetriedCalls, meter: UsageMeter
) -> bool:
    """Return whether a model has structured outputs.

    Raises:
        ModelError: its endpoint cannot be reached for longer than the outage time-out, or refuses access.
        BudgetReached: the call could pass a spending limit.
    """
    prober = cast(OpenAiChat, target.model)
    key = hashlib.sha256(f"forms|{target.endpoint}|{target.name}|{target.settings}".encode()).hexdigest()[:40]
    record = None if ledger is None else await ledger.get(key)
    if record is not None and "forms" in record:
        reply = reply_from(record["reply"]) if isinstance(record.get("reply"), dict) else None
        if reply is not None:
            target.count(meter, "probe", reply, target.cost(reply), from_ledger=True)
        refused = record.get("without")
        if isinstance(refused, list):
            prober.refused_keywords |= frozenset(map(str, refused))
        return bool(record["forms"])
    call = ProbeCall(
        None, [_ProbeTarget(**vars(target))], "probe", _TOKENS, _MAX_INPUT_TOKENS, context=CallContext(meter)
    )

    async def probe() -> CallReply[bool]:
        answered = await retried(call)
        if ledger is not None:
            reply = {} if prober.probed is None else {"reply": record_of(prober.probed, answered.endpoint)}
            await ledger.put(key, {"forms": answered.value, "without": sorted(prober.refused_keywords)} | reply)
        return answered

    return (await finish_if_sent(call, probe())).value


_TIMEOUT_S = 5.0  # of one question
_FIELDS = ("loaded_context_length", "max_model_len", "context_length", "context_window", "max_context_length")
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d{1,9})\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ModelWindow:
    """The context window of a model at an endpoint.

    Attributes:
        tokens: Tokens of a prompt and its reply together.
        n_slots: Requests that the server works on at a time, each with a window of its own; None where it does not say.
        source: The address that told it, such as `/props`.
        is_upper_bound: Whether `tokens` is what the model was trained with, and the server may have set less.
    """

    tokens: int
    n_slots: int | None
    source: str
    is_upper_bound: bool = False


async def find_model_window(settings: EndpointSettings) -> ModelWindow | None:
    """Return the window that an endpoint tells; None where it tells none or does not answer.

    Asks `/v1/models`, and where that does not settle it llama.cpp's `/props` and Ollama's `/api/ps` and `/api/show`.
    """
    client = EndpointClient(settings)
    try:
        listed = await _asked(client, "/models")
        entries = listed.get("data")
        item = _named(entries, "id", settings.model)
        if not item and isinstance(entries, list) and len(entries) == 1:  # any name means the only model of a server
            item = _object(entries[0])
        counts = [_count(_object(item.get("meta")).get("n_ctx")), *(_count(item.get(field)) for field in _FIELDS)]
        told = next((count for count in counts if count is not None), None)
        if told is not None and "meta" not in item:
            return ModelWindow(told, None, "/v1/models")
        root = settings.base_url.rstrip("/").removesuffix("/v1")
        props = await _asked(client, f"{root}/props")
        slot = _count(_object(props.get("default_generation_settings")).get("n_ctx"))
        n_slots = _count(props.get("total_slots"))
        if slot is not None or told is not None:
            tokens, source = (told, "/v1/models") if slot is None else (slot, "/props")
            return ModelWindow(tokens or 0, n_slots, source)
        trained = _count(_object(item.get("meta")).get("n_ctx_train"))
        if trained is not None:
            return ModelWindow(trained, n_slots, "/v1/models", is_upper_bound=True)
        return await _ollama_window(client, root)
    finally:
        await client.close()


async def _ollama_window(client: EndpointClient, root: str) -> ModelWindow | None:
    """Return the window of a model that Ollama serves: as it is loaded, as it is set, or at most as it was trained."""
    loaded = await _asked(client, f"{root}/api/ps")
    if "models" not in loaded:
        return None
    model = client.settings.model
    running = _count(_named(loaded["models"], "name", model).get("context_length"))
    if running is not None:
        return ModelWindow(running, None, "/api/ps")
    shown = await _asked(client, f"{root}/api/show", {"model": model})
    parameters = shown.get("parameters")
    set_to = _NUM_CTX.search(parameters) if isinstance(parameters, str) else None
    if set_to is not None:
        return ModelWindow(int(set_to[1]), None, "/api/show")
    lengths = [value for key, value in _object(shown.get("model_info")).items() if key.endswith(".context_length")]
    trained = _count(lengths[0]) if lengths else None
    return None if trained is None else ModelWindow(trained, None, "/api/show", is_upper_bound=True)


async def _asked(client: EndpointClient, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object at a path or URL, by GET or with a body by POST; an empty one where there is none."""
    try:
        return await client.ask(path, body, timeout_s=_TIMEOUT_S)
    except ModelError:
        return {}


def _named(entries: object, key: str, model: str) -> dict[str, Any]:
    objects: Sequence[object] = entries if isinstance(entries, list) else ()
    for entry in map(_object, objects):
        if entry.get(key) in (model, f"{model}:latest"):
            return entry
    return {}


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return token_count(value) or None
