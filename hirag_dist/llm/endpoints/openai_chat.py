"""Chat models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from hirag_dist.core.prompts.templates import SCHEMAS
from hirag_dist.errors import ModelUnavailable
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, EndpointSettings
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

_PATH = "/chat/completions"
_NAMES_FORMS = re.compile(r"response_?format|json_schema|structured.?output|guided", re.IGNORECASE)
FILTERED = frozenset({"content_filter", "content_policy_violation"})  # codes of a prompt that a filter stopped
_MESSAGE_TOKENS = 4  # what the chat template puts around a message, about
_PROBE_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}},
    "required": ["ok"],
    "additionalProperties": False,
}


class OpenAiChat:
    """A `ChatModel` over one endpoint. Raises RateLimited, ModelUnavailable and RequestRejected, nothing else.

    Args:
        settings: the endpoint.
        count_tokens: counts where the endpoint does not say what a call used.

    Attributes:
        probed: the reply to `supports_forms`, if it asked and was answered.
    """

    def __init__(self, settings: EndpointSettings, count_tokens: Callable[[str], int]) -> None:
        self.name = settings.model
        self.settings = settings
        self._count = count_tokens
        self._client = EndpointClient(settings)
        self._forms: bool | None = {"json_schema": True, "none": False}.get(settings.structured)
        self._probing = asyncio.Lock()
        self.probed: ChatReply | None = None

    def __getstate__(self) -> tuple[EndpointSettings, Callable[[str], int], bool | None]:
        return self.settings, self._count, self._forms

    def __setstate__(self, state: tuple[EndpointSettings, Callable[[str], int], bool | None]) -> None:
        self.__init__(*state[:2])  # type: ignore[misc]
        self._forms = state[2]

    async def complete(self, request: ChatRequest) -> ChatReply:
        """Return the reply; what the model thought aloud is left out.

        A request with a `form` asks for that JSON schema. Where the endpoint turns out not to know schemas, this
        one and all later requests tell the model the schema in words instead.

        A refusal has finish_reason "refusal"; a prompt that a content filter stopped has "content_filter" and no
        text, since that is the text's fault and not the endpoint's.

        Raises:
            RateLimited: 429.
            ModelUnavailable: no answer, 5xx, or an answer without a choice.
            RequestRejected: another 4xx.
        """
        try:
            data = await self._client.post(_PATH, self._body(request))
        except EndpointRefused as error:
            if error.code in FILTERED:
                return self.filtered(self._count_input(request))
            if request.form is None or self._forms is not None or not _is_about_forms(error):
                raise
            self._forms = False
            data = await self._client.post(_PATH, self._body(request))
        return self._reply(data, lambda: self._count_input(request))

    def batch_body(self, request: ChatRequest) -> bytes:
        """Return the JSON that `complete` sends, as a line of a batch has it."""
        return self._client.encode(self._body(request))

    def batch_reply(self, body: Mapping[str, Any], input_tokens: int) -> ChatReply:
        """Return the reply that a line of a batch holds.

        Args:
            body: what `complete` would have been answered.
            input_tokens: of the prompt, where the endpoint does not say.

        Raises:
            ModelUnavailable: an answer without a choice.
        """
        return self._reply(body, lambda: input_tokens)

    def filtered(self, input_tokens: int) -> ChatReply:
        """Return the reply that stands for a prompt that a content filter stopped."""
        return ChatReply("", "content_filter", self.name, input_tokens=input_tokens)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str]:
        """Yield the reply's text in pieces. Raises as `complete` does, also when the stream breaks off."""
        finished = False
        async with aclosing(self._client.stream(_PATH, self._body(request) | {"stream": True})) as events:
            async for event in events:
                for choice in event.get("choices") or ():
                    delta = choice.get("delta") or {}
                    text = _text(delta.get("content")) or _text(delta.get("refusal"))
                    if text:
                        yield text
                    finished = finished or bool(choice.get("finish_reason"))
        if not finished:
            raise ModelUnavailable(f"endpoint {self.settings.name} ({self.name}) broke off its stream")

    async def supports_forms(self) -> bool:
        """Return whether the endpoint keeps to a JSON schema. Asks once, with a small call; raises as `complete`."""
        async with self._probing:
            if self._forms is None:
                self._forms = await self._probe()
        return self._forms

    @property
    def rate_limits(self) -> RateLimits | None:
        """The limits that the endpoint's last answer named."""
        return self._client.rate_limits

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    async def _probe(self) -> bool:
        body = self._base([{"role": "user", "content": "Is water wet? Set ok to true if it is."}])
        body["response_format"] = _response_format("probe", _PROBE_SCHEMA)
        if self.settings.max_reply_tokens is not None:
            body[self.settings.max_tokens_field] = self.settings.max_reply_tokens
        try:
            data = await self._client.post(_PATH, body)
        except EndpointRefused as error:
            if _is_about_forms(error):
                return False
            raise
        self.probed = self._reply(data, lambda: 0)
        try:
            answer = json.loads(self.probed.text)
        except ValueError:
            return False
        return isinstance(answer, dict) and list(answer) == ["ok"] and isinstance(answer["ok"], bool)

    def _base(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.settings.model, "messages": messages}
        if self.settings.temperature is not None:
            body["temperature"] = self.settings.temperature
        return body

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        body = self._base(messages)
        limit = request.max_tokens or self.settings.max_reply_tokens
        if limit is not None:
            body[self.settings.max_tokens_field] = limit
        if request.form is not None:
            schema = SCHEMAS[request.form]
            if self._forms is False:
                messages[0]["content"] += (
                    "\n\nReply with one JSON object and nothing else, of this JSON schema:\n" + json.dumps(schema)
                )
            else:
                body["response_format"] = _response_format(request.form, schema)
        return body

    def _reply(self, data: Mapping[str, Any], count_input: Callable[[], int]) -> ChatReply:
        text, finish_reason = self._choice(data)
        usage = data.get("usage") or {}
        details = usage.get("prompt_tokens_details") or {}
        input_tokens, output_tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
        cached = details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens") or 0
        return ChatReply(
            text=text,
            finish_reason=finish_reason,
            model=str(data.get("model") or self.name),
            input_tokens=count_input() if input_tokens is None else int(input_tokens),
            cached_tokens=int(cached),
            output_tokens=self._count(text) if output_tokens is None else int(output_tokens),
        )

    def _choice(self, data: Mapping[str, Any]) -> tuple[str, str]:
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ModelUnavailable(f"endpoint {self.settings.name} ({self.name}) answered without a choice")
        message = choices[0].get("message") or {}
        if message.get("refusal"):
            return _text(message["refusal"]), "refusal"
        return _text(message.get("content")), str(choices[0].get("finish_reason") or "stop")

    def _count_input(self, request: ChatRequest) -> int:
        return sum(self._count(message.content) + _MESSAGE_TOKENS for message in request.messages)


def _response_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def _is_about_forms(error: EndpointRefused) -> bool:
    return error.status in (400, 422) and _NAMES_FORMS.search(error.said) is not None


def _text(content: object) -> str:
    """Return a message's text; some endpoints send it as a list of parts."""
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
