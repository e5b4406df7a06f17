"""Chat models behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Literal, NamedTuple

from hirag_dist.core.prompts.reply_limits import (
    RATIO,
    array_schema,
    integer_schema,
    object_schema,
    reply_room,
    text_schema,
)
from hirag_dist.core.prompts.reply_validation import INVALID_JSON, REPETITION
from hirag_dist.core.prompts.templates import reply_schema
from hirag_dist.core.text.thinking import ThinkingReader, without_thinking
from hirag_dist.errors import ModelUnavailable, UnusableReply
from hirag_dist.llm.endpoints.openai_client import DONE, EndpointClient, EndpointRefused, EndpointSettings, error_codes
from hirag_dist.llm.endpoints.openai_replies import (
    INTERRUPTED,
    Completion,
    StreamedParts,
    UnusableField,
    message_text,
    parse_completion,
    parse_object,
)
from hirag_dist.llm.usage import MAX_REPLY_TOKENS, prompt_chars
from hirag_dist.types import ChatReply, ChatRequest, RateLimits

# Those that are refused most often come first. They are given up in this order, where a refusal names none.
KEYWORD_GROUPS: tuple[tuple[str, ...], ...] = (
    ("maxLength", "minLength", "pattern", "maxItems", "minItems"),
    ("minimum", "maximum", "enum", "additionalProperties"),
)


def without(schema: Mapping[str, Any], keywords: Collection[str]) -> dict[str, Any]:
    """Return a schema without some keywords, at any depth; properties that are named as a keyword stay.

    >>> without({"properties": {"enum": {"type": "string", "maxLength": 9}}}, ["enum", "maxLength"])
    {'properties': {'enum': {'type': 'string'}}}
    """
    kept: dict[str, Any] = {}
    for key, value in schema.items():
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            kept[key] = {name: _inner(inner, keywords) for name, inner in value.items()}
        elif key not in keywords:
            kept[key] = value if key in ("enum", "const", "default", "required") else _inner(value, keywords)
    return kept


def to_give_up(schema: Mapping[str, Any], said: str, given_up: Collection[str]) -> frozenset[str]:
    """Return the keywords of a schema that a server refuses next: those that it names, else the next group.

    Args:
        said: the server's refusal.
        given_up: keywords that were left out of the refused request.
    """
    present = [tuple(word for word in group if _uses(schema, word)) for group in KEYWORD_GROUPS]
    left = [[word for word in group if word not in given_up] for group in present]
    lower = said.lower()
    named = frozenset(word for group in left for word in group if word.lower() in lower)
    return named or frozenset(next((group for group in left if group), ()))


def _inner(value: Any, keywords: Collection[str]) -> Any:
    if isinstance(value, Mapping):
        return without(value, keywords)
    if isinstance(value, list):
        return [_inner(item, keywords) for item in value]
    return value


def _uses(value: Any, keyword: str) -> bool:
    if isinstance(value, Mapping):
        return keyword in value or any(_uses(inner, keyword) for inner in value.values())
    return isinstance(value, list) and any(_uses(item, keyword) for item in value)


MESSAGE_TOKENS = 4  # what the chat template puts around a message, about


class ReplyLimit:
    """Limits of the replies of one endpoint, which learn how its model's tokenizer counts against the local one.

    Args:
        window: tokens of a prompt and its reply together; None where it is not known: nothing is limited.
    """

    def __init__(self, window: int | None, count_tokens: Callable[[str], int]) -> None:
        self._window = window
        self._count = count_tokens
        self._ratio = RATIO

    def of(self, texts: Sequence[str], wanted: int | None) -> int | None:
        """Return the maximum tokens of a reply to a prompt: what is wanted, as far as the window has room.

        None is no limit, both as what is wanted and as the result.
        """
        if self._window is None:
            return wanted
        enough = MAX_REPLY_TOKENS if wanted is None else wanted
        most = sum(len(text) + MESSAGE_TOKENS for text in texts)  # few tokens are shorter than a character
        if reply_room(self._window, most) >= enough:
            return wanted
        room = reply_room(self._window, self._counted(texts), self._ratio)
        return wanted if room >= enough else room

    def learn(self, texts: Sequence[str], reported: int) -> None:
        """Note how many tokens the endpoint counted in a prompt."""
        if self._window is None or 4 * sum(map(len, texts)) < self._window:  # far from the end: not worth counting
            return
        self._ratio = max(self._ratio, reported / max(self._counted(texts), 1))

    def _counted(self, texts: Sequence[str]) -> int:
        return sum(self._count(text) + MESSAGE_TOKENS for text in texts)


_PATH = "/chat/completions"
_NAMES_FORMS = re.compile(
    r"response_?(?:format|schema)|json.?schema|structured.?output|guided|grammar|additionalProperties|schema",
    re.IGNORECASE,
)
_NO_FORMS = re.compile(
    r"response_?format.*(?:unavailable|unsupported|not support|unknown|unrecognized|unexpected|not permitted|extra)",
    re.IGNORECASE | re.DOTALL,
)
_NO_STREAM = re.compile(r"\bstream(?:s|ing|ed)?\b", re.IGNORECASE)
_MAY_DO_WITHOUT = frozenset({400, 404, 405, 415, 422, 501})  # statuses of a request for what a server does not have
FILTERED = frozenset({"content_filter", "content_policy_violation"})  # codes of a prompt that a filter stopped
_NO_JSON = "json_validate_failed"  # code of a reply that the server withholds: the model wrote no JSON
_PROBE = "Is water wet? Set ok to true if it is, and list one or two words for it."
_PROBE_TOKENS = 1000  # of the reply to it: a model may think before
_MAY_THINK = re.compile(r"<\|(?:channel|start)|</?think|</?reasoning|</?thought|think[\]▷]", re.IGNORECASE)
_MAX_MODELS = 20  # that one endpoint's replies may name
_PROBE_SCHEMA: Mapping[str, Any] = object_schema(  # with every keyword that the schemas of requests use
    ok={"type": "boolean"},
    sure={"type": "string", "enum": ["yes", "no"]},
    percent=integer_schema(0, 100),
    words=array_schema(text_schema(500), 2),
)


class _Forms(NamedTuple):
    """How a request asks for a form: by a JSON schema, without some of its keywords, or in words."""

    with_schema: bool
    without: frozenset[str]


class OpenAiChat:
    """A `ChatModel` over one endpoint. Raises RateLimited, ModelUnavailable and RequestRejected, nothing else.

    Args:
        count_tokens: counts where the endpoint does not say what a call used.

    Attributes:
        probed: the reply to `supports_forms`, if it asked and was answered.
        refused_keywords: keywords of JSON schemas that the endpoint was found to refuse; they are left out.
    """

    def __init__(self, settings: EndpointSettings, count_tokens: Callable[[str], int]) -> None:
        self.name = settings.model
        self.settings = settings
        self._count = count_tokens
        self._client = EndpointClient(settings)
        self._forms: bool | None = {"json_schema": True, "none": False}.get(settings.structured)
        self._forms_work = False  # whether a request with a schema was answered
        self._streaming: Literal["with usage", "plain", "none"] = "with usage"
        self._has_streamed = False
        self._opens_thinking = False
        self._probing = asyncio.Lock()
        self._limit = ReplyLimit(settings.context_window, count_tokens)
        self._models: set[str] = set()
        self.probed: ChatReply | None = None
        self.refused_keywords: frozenset[str] = frozenset()

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

        Raises as `EndpointClient.post`, and UnusableReply for an answer without a choice.
        """
        forms = _Forms(self._forms is not False, self.refused_keywords)
        while True:
            body = self._body(request, forms)
            try:
                found = await self._completion(body, prompt_chars(request))
            except EndpointRefused as error:
                reply = self._reply_in(error, request)
                if reply is not None:
                    return reply
                forms = self._fewer(forms, body, error)
                continue
            self._note(forms, body)
            reply = self._reply(found, lambda: self._count_input(request))
            if request.form is None or "response_format" in body:  # else the prompt holds a schema too
                self._limit.learn([message.content for message in request.messages], reply.input_tokens)
            return reply

    def filtered(self, input_tokens: int) -> ChatReply:
        """Return the reply that stands for a prompt that a content filter stopped."""
        return ChatReply("", "content_filter", self.name, input_tokens=input_tokens)

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str | ChatReply]:
        """Yield the text in pieces, without thinking, then the reply.

        A stream that repeats itself is read no further: its reply has finish_reason "repetition".

        Raises as `complete` does, also when the stream breaks off.
        """
        reader = ThinkingReader(self._opens_thinking)
        parts = StreamedParts()
        shown: list[str] = []
        forms = _Forms(self._forms is not False, self.refused_keywords)
        while True:
            body = self._body(request, forms)
            try:
                async with aclosing(self._blocks(body, parts)) as blocks:
                    async for events in blocks:
                        text = "".join(parts.add(event) for event in events if isinstance(event, dict))
                        if piece := self._shown(reader.feed(text), shown):
                            yield piece
                        if parts.is_stuck():
                            parts.finish_reason = REPETITION
                            break
                break
            except EndpointRefused as error:
                reply = self._reply_in(error, request)
                if reply is not None:
                    yield reply
                    return
                if not self._may_stream_less(error):
                    forms = self._fewer(forms, body, error)
        if piece := self._shown(reader.finish(), shown):
            yield piece
        self._note(forms, body)
        self._opens_thinking = self._opens_thinking or reader.unopened
        with self._client.unusable():
            found = parts.completion(prompt_chars(request))
        reply = self._reply(found, lambda: self._count_input(request))
        yield replace(reply, text="".join(shown).rstrip())

    @staticmethod
    def _shown(piece: str, shown: list[str]) -> str:
        """Add a piece to those that were shown, without white space where it is the first; return it."""
        piece = piece if shown else piece.lstrip()
        if piece:
            shown.append(piece)
        return piece

    async def _completion(self, body: dict[str, Any], n_input_chars: int) -> Completion:
        """Return the reply to a body, streamed where the endpoint streams.

        A stream that repeats itself is read no further: its text ends as if the limit of tokens had been reached.
        """
        parts = StreamedParts()
        while self._streaming != "none":
            try:
                async with aclosing(self._blocks(body, parts, at_leisure=True)) as blocks:
                    async for events in blocks:
                        parts.extend(events)
                        if parts.is_stuck():
                            parts.finish_reason = "length"
                            break
                with self._client.unusable():
                    return parts.completion(n_input_chars)
            except EndpointRefused as error:
                if not self._may_stream_less(error):
                    raise
            except ModelUnavailable as error:
                if error.status != 500 or self._has_streamed:
                    raise
                break  # a server may fail where a stream is asked for
        data = await self._client.post(_PATH, body)
        if not self._has_streamed:
            self._streaming = "none"
        with self._client.unusable():
            return parse_completion(data, n_input_chars)

    async def _blocks(
        self, body: Mapping[str, Any], parts: StreamedParts, *, at_leisure: bool = False
    ) -> AsyncGenerator[list[Any]]:
        """Yield the events of a streamed reply, as many at a time as have come. The caller adds them to `parts`."""
        mode = self._streaming
        streamed: dict[str, Any] = {**body, "stream": mode != "none"}
        if mode == "with usage":
            streamed["stream_options"] = {"include_usage": True}
        async with aclosing(self._client.stream(_PATH, streamed, at_leisure=at_leisure)) as blocks:
            async for block in blocks:
                yield self._parsed(block, parts)
        if not parts.is_complete:
            raise ModelUnavailable(f"{self._client.who} broke off its stream", was_sent=True)
        if mode != "none":
            self._has_streamed, self._streaming = True, mode

    def _parsed(self, block: list[bytes], parts: StreamedParts) -> list[Any]:
        """Return the JSON values of events. Raises the error that one holds."""
        parts.done = parts.done or DONE in block
        datas = [data for data in block if data != DONE] if parts.done else block
        try:
            events: list[Any] = json.loads(b"[%s]" % b",".join(datas))
        except (ValueError, RecursionError):
            events = [self._client.parse(data) for data in datas]  # says what is wrong with which
        for event in events:
            if isinstance(event, dict) and "error" in event:
                self._client.raise_error_in(event)
        return events

    def _may_stream_less(self, error: EndpointRefused) -> bool:
        """Return whether to ask again without what the endpoint may refuse of streams; it is left out from then on."""
        if error.status not in _MAY_DO_WITHOUT or self._streaming == "none" or self._has_streamed:
            return False
        said = error.said
        if self._streaming == "with usage" and re.search("stream_options|include_usage", said):
            self._streaming = "plain"
            return True
        if _NO_STREAM.search(said):
            self._streaming = "none"
            return True
        return False

    def _reply_in(self, error: EndpointRefused, request: ChatRequest) -> ChatReply | None:
        """Return the reply that a refusal stands for, None for none: a filtered prompt, or a text that is no JSON."""
        if FILTERED.intersection((error.code, *error_codes(error.detail))):
            return self.filtered(self._count_input(request))
        if error.code == _NO_JSON:
            text = message_text(error.detail.get("failed_generation"))
            return ChatReply(text, INVALID_JSON, self.name, self._count_input(request), 0, self._count(text))
        return None

    def _fewer(self, forms: _Forms, body: Mapping[str, Any], error: EndpointRefused) -> _Forms:
        """Return the keywords to ask with after a refusal, or no schema at all; raise a refusal of another kind."""
        if "response_format" not in body or error.status not in (400, 422, 501):
            raise error
        is_named = _NAMES_FORMS.search(error.said) is not None
        if self._forms_work and not is_named:
            raise error
        schema = body["response_format"]["json_schema"]["schema"]
        keywords = to_give_up(schema, error.said, forms.without)
        is_named = is_named and (not _NO_FORMS.search(error.said) or any(word in error.said for word in keywords))
        if keywords and is_named:
            return _Forms(True, forms.without | keywords)
        if self._forms is not None:
            raise error
        return _Forms(False, forms.without)

    def _note(self, forms: _Forms, body: Mapping[str, Any]) -> None:
        """Keep to what a request was answered with."""
        if "response_format" in body:
            self._forms_work = True
            self.refused_keywords |= forms.without
        elif not forms.with_schema and self._forms is None:
            self._forms = False

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

    async def ping(self) -> ChatReply:
        """Return the reply to a request for one token. Raises as `complete`."""
        body = self._base([{"role": "user", "content": "Hi"}]) | {self.settings.max_tokens_field: 1}
        data = await self._client.post(_PATH, body)
        with self._client.unusable():
            found = parse_completion(data, 2)
        return self._reply(found, lambda: 1 + MESSAGE_TOKENS)

    async def _probe(self) -> bool:
        forms = _Forms(True, self.refused_keywords)
        while True:
            body = self._base([{"role": "user", "content": _PROBE}])
            body["response_format"] = _response_format("probe", without(_PROBE_SCHEMA, forms.without))
            body[self.settings.max_tokens_field] = min(self.settings.max_reply_tokens or _PROBE_TOKENS, _PROBE_TOKENS)
            try:
                found = await self._completion(body, len(_PROBE))
                break
            except EndpointRefused as error:
                if error.code == _NO_JSON:
                    return False
                forms = self._fewer(forms, body, error)
                if not forms.with_schema:
                    return False
        self._note(forms, body)
        self.probed = self._reply(found, lambda: self._count(_PROBE) + MESSAGE_TOKENS)
        try:
            answer = parse_object(self.probed.text)
        except UnusableField:
            return False
        return list(answer) == list(_PROBE_SCHEMA["properties"]) and isinstance(answer["ok"], bool)

    def _base(self, messages: list[dict[str, str]]) -> dict[str, Any]:
        body: dict[str, Any] = {"model": self.settings.model, "messages": messages}
        if self.settings.temperature is not None:
            body["temperature"] = self.settings.temperature
        return body

    def _body(self, request: ChatRequest, forms: _Forms) -> dict[str, Any]:
        messages = [{"role": message.role, "content": message.content} for message in request.messages]
        body = self._base(messages)
        if request.temperature is not None and self.settings.temperature is not None:
            body["temperature"] = request.temperature
        if request.frequency_penalty is not None:
            body["frequency_penalty"] = request.frequency_penalty
        if request.form is not None:
            schema = reply_schema(request)
            if forms.without:
                schema = without(schema, forms.without)
            if not forms.with_schema:
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

    def _reply(self, found: Completion, count_input: Callable[[], int]) -> ChatReply:
        """Return a reply without its thinking; token counts that the endpoint does not report are counted here.

        Raises:
            UnusableReply: the endpoint gave up before the end of the reply.
        """
        if found.finish_reason == INTERRUPTED:
            raise UnusableReply(f"{self._client.who} broke off its reply", was_sent=True)
        usage = found.usage
        self._client.warn_of(usage)
        text = without_thinking(found.text) if _MAY_THINK.search(found.text) else found.text
        n_thought = usage.reasoning_tokens
        if n_thought is None:
            n_marked = self._count(found.text) - self._count(text) if len(text) < len(found.text) else 0
            n_thought = max(n_marked, 0) + (self._count(found.reasoning) if found.reasoning else 0)
        model = found.model
        if not model or (model not in self._models and len(self._models) >= _MAX_MODELS):
            model = self.name  # rows of the bill are bounded in number
        else:
            self._models.add(model)
        return ChatReply(
            text,
            found.finish_reason,
            model,
            count_input() if usage.input_tokens is None else usage.input_tokens,
            usage.cached_tokens,
            self._count(text) + n_thought if usage.output_tokens is None else usage.output_tokens,
            n_thought,
        )

    def _count_input(self, request: ChatRequest) -> int:
        return sum(self._count(message.content) + MESSAGE_TOKENS for message in request.messages)


def _response_format(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": schema}}
