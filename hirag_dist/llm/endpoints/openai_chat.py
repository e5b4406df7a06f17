"""Chat models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from hirag_dist.core.prompts.templates import reply_schema
from hirag_dist.errors import ModelUnavailable, UnusableReply
from hirag_dist.llm.endpoints.openai_client import EndpointClient, EndpointRefused, EndpointSettings
from hirag_dist.llm.endpoints.openai_replies import (
    Completion,
    UnusableField,
    parse_completion,
    parse_delta,
    parse_object,
)
from hirag_dist.llm.endpoints.reply_limit import MESSAGE_TOKENS, ReplyLimit
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

logger = logging.getLogger(__name__)
_PATH = "/chat/completions"
_NAMES_FORMS = re.compile(r"response_?format|json_schema|structured.?output|guided", re.IGNORECASE)
FILTERED = frozenset({"content_filter", "content_policy_violation"})  # codes of a prompt that a filter stopped
_PROBE = "Is water wet? Set ok to true if it is."
_MAX_MODELS = 20  # that one endpoint's replies may name
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
        self._limit = ReplyLimit(settings.context_window, count_tokens)
        self._warned = False
        self._models: set[str] = set()
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
            ModelUnavailable: no answer, or 5xx.
            UnusableReply: an answer without a choice, or too large.
            RequestRejected: another 4xx, or a redirect to another host.
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
        reply = self._reply(data, _n_chars(request), lambda: self._count_input(request))
        if request.form is None or self._forms is not False:  # else the prompt holds a schema too
            self._limit.learn([message.content for message in request.messages], reply.input_tokens)
        return reply

    def filtered(self, input_tokens: int) -> ChatReply:
        """Return the reply that stands for a prompt that a content filter stopped."""
        return ChatReply("", "content_filter", self.name, input_tokens=input_tokens)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text in pieces, then the reply. Raises as `complete` does, also when the stream breaks off."""
        finish_reason = ""
        texts: list[str] = []
        async with aclosing(self._client.stream(_PATH, self._body(request) | {"stream": True})) as events:
            async for event in events:
                text, reason = parse_delta(event)
                finish_reason = reason or finish_reason
                if text:
                    texts.append(text)
                    yield text
        if not finish_reason:
            raise ModelUnavailable(f"endpoint {self.settings.name} ({self.name}) broke off its stream")
        whole = "".join(texts)
        yield ChatReply(
            whole,
            finish_reason,
            self.name,
            input_tokens=self._count_input(request),
            output_tokens=self._count(whole),
        )

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
        body = self._base([{"role": "user", "content": _PROBE}])
        body["response_format"] = _response_format("probe", _PROBE_SCHEMA)
        if self.settings.max_reply_tokens is not None:
            body[self.settings.max_tokens_field] = self.settings.max_reply_tokens
        try:
            data = await self._client.post(_PATH, body)
        except EndpointRefused as error:
            if _is_about_forms(error):
                return False
            raise
        self.probed = self._reply(data, len(_PROBE), lambda: self._count(_PROBE) + MESSAGE_TOKENS)
        try:
            answer = parse_object(self.probed.text)
        except UnusableField:
            return False
        return list(answer) == ["ok"] and isinstance(answer["ok"], bool)

    def _base(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.settings.model, "messages": messages}
        if self.settings.temperature is not None:
            body["temperature"] = self.settings.temperature
        return body

    def _body(self, request: ChatRequest) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        body = self._base(messages)
        if request.temperature is not None and self.settings.temperature is not None:
            body["temperature"] = request.temperature
        if request.frequency_penalty is not None:
            body["frequency_penalty"] = request.frequency_penalty
        if request.form is not None:
            schema = reply_schema(request)
            if self._forms is False:
                messages[0]["content"] += (
                    "\n\nReply with one JSON object and nothing else, of this JSON schema:\n" + json.dumps(schema)
                )
            else:
                body["response_format"] = _response_format(request.form, schema)
        limits = [limit for limit in (request.max_tokens, self.settings.max_reply_tokens) if limit]
        limit = self._limit.of([message["content"] for message in messages], min(limits, default=None))
        if limit is not None:
            body[self.settings.max_tokens_field] = limit
        return body

    def _reply(self, data: Mapping[str, Any], n_input_chars: int, count_input: Callable[[], int]) -> ChatReply:
        try:
            found = parse_completion(data, n_input_chars)
        except UnusableField as problem:
            raise UnusableReply(f"{self._client.who} answered {problem}") from None
        usage = found.usage
        if usage.problem and not self._warned:
            self._warned = True
            logger.warning(
                "%s reports a usage that cannot be true (%s): such counts are estimated from the texts",
                self._client.who,
                usage.problem,
            )
        if usage.input_tokens is None or usage.output_tokens is None:
            return self._estimated(found, count_input)
        return ChatReply(
            found.text,
            found.finish_reason,
            self._shown_model(found.model),
            usage.input_tokens,
            usage.cached_tokens,
            usage.output_tokens,
        )

    def _estimated(self, found: Completion, count_input: Callable[[], int]) -> ChatReply:
        """Return a reply whose unknown token counts are those of the local tokenizer."""
        usage = found.usage
        n_input = count_input() if usage.input_tokens is None else usage.input_tokens
        n_output = self._count(found.text) if usage.output_tokens is None else usage.output_tokens
        model = self._shown_model(found.model)
        return ChatReply(found.text, found.finish_reason, model, n_input, usage.cached_tokens, n_output)

    def _shown_model(self, reported: str) -> str:
        """Return the model's name for the bill, whose rows are bounded in number."""
        if not reported or (reported not in self._models and len(self._models) >= _MAX_MODELS):
            return self.name
        self._models.add(reported)
        return reported

    def _count_input(self, request: ChatRequest) -> int:
        return sum(self._count(message.content) + MESSAGE_TOKENS for message in request.messages)


def _n_chars(request: ChatRequest) -> int:
    return sum(len(message.content) for message in request.messages)


def _response_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}


def _is_about_forms(error: EndpointRefused) -> bool:
    return error.status in (400, 422) and _NAMES_FORMS.search(error.said) is not None
