"""The OpenAI API: requests read and checked, answered by the model, replies and errors written."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from hirag_dist.core.prompts.templates import FORMATS
from hirag_dist.core.text.tokens import counter
from hirag_dist.errors import RequestRejected
from hirag_dist.protocols import Embedder
from hirag_dist.types import ChatReply, FloatMatrix, Message

_MESSAGE_TOKENS, _REPLY_TOKENS = 4, 3  # what OpenAI's chat template adds to a message, and to a call
_KNOWN = 2048  # instructions come again with every call, a unit's text with its gleaning and its retries
_ROLE_OF = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PIECE_CHARS = 24
REFUSAL = "refusal"
B = TypeVar("B", bound=BaseModel)


class ApiError(Exception):
    """An error that the API answers with a status and a JSON body."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        kind: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}


def server_error() -> ApiError:
    """Return the API's 500."""
    return ApiError(500, "The server had an error while processing your request.", kind="server_error")


@dataclass(slots=True)
class ChatCall:
    """A checked chat request, its size, and its reply where it was asked before.

    Attributes:
        form: name of a schema of this package.
        schema: a foreign schema.
    """

    model: str
    messages: tuple[Message, ...]
    form: str | None
    schema: Mapping[str, Any] | None
    stream: bool
    stream_usage: bool
    input_tokens: int
    reply: ChatReply | None = None


@dataclass(slots=True)
class EmbeddingCall:
    """A checked embedding request, its size, and the reply's body where it was asked before."""

    model: str
    texts: tuple[str, ...]
    as_base64: bool
    input_tokens: int
    body: bytes | None = None


class _Body(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, protected_namespaces=())


class _Part(_Body):
    text: str


class _BodyMessage(_Body):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[_Part]


class _JsonSchema(_Body):
    name: str
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")


class _Format(_Body):
    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: _JsonSchema | None = None


class _StreamOptions(_Body):
    include_usage: bool = False


class _ChatBody(_Body):
    model: str = Field(min_length=1)
    messages: list[_BodyMessage] = Field(min_length=1)
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    response_format: _Format | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)


class _EmbeddingBody(_Body):
    model: str = Field(min_length=1)
    input: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1),
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
    ]
    encoding_format: Literal["float", "base64"] = "float"


def _checked(kind: type[B], raw: bytes) -> B:
    try:
        return kind.model_validate_json(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "json_invalid":
            raise ApiError(400, f"We could not parse the JSON body of your request. ({first['msg']})") from error
        param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        raise ApiError(400, f"Invalid '{param}': {first['msg']}", "invalid_value", param) from error


def read_chat(raw: bytes, count: Callable[[str], int]) -> ChatCall:
    """Return a chat request, its tokens counted. Raises ApiError 400 that names the field at fault."""
    body = _checked(_ChatBody, raw)
    asked = body.response_format or _Format()
    form, schema = None, None
    if asked.type == "json_schema":
        described = asked.json_schema
        if described is None or (described.name not in FORMATS and described.schema_ is None):
            raise ApiError(400, "Missing 'response_format.json_schema.schema'.", "invalid_value", "response_format")
        form, schema = (described.name, None) if described.name in FORMATS else (None, described.schema_)
    messages = tuple(
        Message(
            _ROLE_OF[each.role],
            each.content if isinstance(each.content, str) else "".join(part.text for part in each.content),
        )
        for each in body.messages
    )
    return ChatCall(
        model=body.model,
        messages=messages,
        form=form,
        schema=schema,
        stream=bool(body.stream),
        stream_usage=body.stream_options is not None and body.stream_options.include_usage,
        input_tokens=sum(count(each.content) + _MESSAGE_TOKENS for each in messages) + _REPLY_TOKENS,
    )


def read_embedding(raw: bytes, count: Callable[[str], int]) -> EmbeddingCall:
    """Return an embedding request, its tokens counted. Raises ApiError 400 that names the field at fault."""
    body = _checked(_EmbeddingBody, raw)
    return EmbeddingCall(body.model, tuple(body.input), body.encoding_format == "base64", sum(map(count, body.input)))


def chat_body(model: str, reply: ChatReply, reply_id: str, created: int) -> dict[str, Any]:
    """Return the body of a whole reply. A finish_reason of "refusal" is written as the API does it."""
    refused = reply.finish_reason == REFUSAL
    message = {
        "role": "assistant",
        "content": None if refused else reply.text,
        "refusal": reply.text if refused else None,
    }
    return {
        "id": reply_id,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}],
        "usage": _usage(reply),
    }


def chat_events(model: str, reply: ChatReply, reply_id: str, created: int, with_usage: bool) -> Iterator[bytes]:
    """Yield the server-sent events of a streamed reply, [DONE] last."""
    head = {"id": reply_id, "object": "chat.completion.chunk", "created": created, "model": model}

    def event(delta: dict[str, str], finish_reason: str | None) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}]
        return b"data: " + dump(head | {"choices": choices}) + b"\n\n"

    field = "refusal" if reply.finish_reason == REFUSAL else "content"
    yield event({"role": "assistant", field: ""}, None)
    for start in range(0, len(reply.text), _PIECE_CHARS):
        yield event({field: reply.text[start : start + _PIECE_CHARS]}, None)
    yield event({}, _finish(reply))
    if with_usage:
        yield b"data: " + dump(head | {"choices": [], "usage": _usage(reply)}) + b"\n\n"
    yield b"data: [DONE]\n\n"


def embedding_body(call: EmbeddingCall, vectors: FloatMatrix) -> dict[str, Any]:
    """Return the body of an embedding reply."""
    rows: Sequence[Any] = vectors.tolist()
    if call.as_base64:
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": call.model,
        "usage": {"prompt_tokens": call.input_tokens, "total_tokens": call.input_tokens},
    }


def dump(body: object) -> bytes:
    """Return JSON in UTF-8; a lone surrogate is written as an escape."""
    try:
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(body, separators=(",", ":")).encode()


def instance_of(schema: Mapping[str, Any]) -> Any:
    """Return the smallest value that a strict JSON schema allows: what a model constrained to it cannot but say.

    >>> instance_of({"type": "object", "properties": {"ok": {"type": "boolean"}}})
    {'ok': True}
    """
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    if kind == "object":
        return {name: instance_of(inner) for name, inner in (schema.get("properties") or {}).items()}
    plain: dict[object, Any] = {"array": [], "string": "", "boolean": True, "integer": 0, "number": 0}
    return plain.get(kind)


def _finish(reply: ChatReply) -> str:
    return "stop" if reply.finish_reason == REFUSAL else reply.finish_reason


def _usage(reply: ChatReply) -> dict[str, Any]:
    return {
        "prompt_tokens": reply.input_tokens,
        "completion_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


Reply = Callable[[Sequence[Message], str | None], str]
Structured = Callable[[Sequence[Message], Mapping[str, Any]], str]


class Answers:
    """Answers from the messages alone: the same request has the same reply.

    `chat_call` and `embedding_call` return the request in a body, and raise ApiError 400.
    Its arguments are those of `Endpoint`.
    """

    def __init__(self, reply: Reply, embedder: Embedder, structured: Structured | None = None) -> None:
        self._reply = reply
        self._structured = structured
        self._embedder = embedder
        self._count = lru_cache(4 * _KNOWN)(counter("o200k_base"))
        self.chat_call = lru_cache(_KNOWN)(partial(read_chat, count=self._count))
        self.embedding_call = lru_cache(_KNOWN)(partial(read_embedding, count=self._count))

    def answer(self, call: ChatCall) -> ChatReply:
        """Return the reply. Raises ApiError 400 for what the model cannot do."""
        if call.reply is None:
            try:
                if call.schema is None:
                    text = self._reply(call.messages, call.form)
                elif self._structured is None:
                    text = dump(instance_of(call.schema)).decode()
                else:
                    text = self._structured(call.messages, call.schema)
            except RequestRejected as error:
                raise ApiError(400, str(error), "model_cannot") from error
            call.reply = self.resized(ChatReply(text, model=call.model, input_tokens=call.input_tokens))
        return call.reply

    def resized(self, reply: ChatReply) -> ChatReply:
        """Return a reply with the tokens of its text."""
        return replace(reply, output_tokens=self._count(reply.text))

    async def embed(self, call: EmbeddingCall) -> bytes:
        """Return the body of the reply."""
        if call.body is None:
            call.body = dump(embedding_body(call, await self._embedder.embed(call.texts)))
        return call.body
