"""The OpenAI API's bodies: requests read and checked, replies and errors written."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.core.prompts.templates import FORMATS
from hirag_dist.types import ChatReply, FloatMatrix, Message

_ROLE_OF = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_PIECE_CHARS = 24
REFUSAL = "refusal"


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


@dataclass(frozen=True, slots=True)
class ChatCall:
    """A checked chat request. `form` names a schema of this package; `schema` is a foreign one."""

    model: str
    messages: tuple[Message, ...]
    form: str | None
    schema: Mapping[str, Any] | None
    stream: bool
    stream_usage: bool


@dataclass(frozen=True, slots=True)
class EmbeddingCall:
    """A checked embedding request."""

    model: str
    texts: tuple[str, ...]
    as_base64: bool


def read_object(raw: bytes) -> dict[str, Any]:
    """Return the JSON object of a request. Raises ApiError 400."""
    try:
        body = json.loads(raw)
    except ValueError as error:
        said = "We could not parse the JSON body of your request."
        raise ApiError(400, f"{said} ({error})") from error
    if not isinstance(body, dict):
        raise ApiError(400, "The JSON body of your request must be an object.")
    return body


def read_chat(body: Mapping[str, Any]) -> ChatCall:
    """Return a chat request. Raises ApiError 400 that names the field at fault."""
    model = _model(body)
    messages = _field(body, "messages", list)
    if not messages:
        raise ApiError(400, "Invalid 'messages': empty array.", "empty_array", "messages")
    options = _field(body, "stream_options", dict, default={})
    form, schema = _format(_field(body, "response_format", dict, default={}))
    for name in ("max_tokens", "max_completion_tokens"):
        limit = _field(body, name, int, default=1)
        if limit < 1:
            raise ApiError(400, f"Invalid '{name}': must be at least 1.", "integer_below_min_value", name)
    return ChatCall(
        model=model,
        messages=tuple(_message(item, place) for place, item in enumerate(messages)),
        form=form,
        schema=schema,
        stream=_field(body, "stream", bool, default=False),
        stream_usage=bool(options.get("include_usage")),
    )


def read_embedding(body: Mapping[str, Any]) -> EmbeddingCall:
    """Return an embedding request. Raises ApiError 400 that names the field at fault."""
    model = _model(body)
    texts = body.get("input")
    if isinstance(texts, str):
        texts = [texts]
    if texts is None:
        raise ApiError(400, "Missing required parameter: 'input'.", "missing_required_parameter", "input")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ApiError(400, "Invalid 'input': a string or an array of strings is expected.", "invalid_type", "input")
    if not texts or not all(texts):
        raise ApiError(400, "Invalid 'input': it must not be empty.", "invalid_value", "input")
    encoding = _field(body, "encoding_format", str, default="float")
    if encoding not in ("float", "base64"):
        raise ApiError(400, "Invalid 'encoding_format': float or base64.", "invalid_value", "encoding_format")
    return EmbeddingCall(model, tuple(texts), encoding == "base64")


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


def embedding_body(call: EmbeddingCall, vectors: FloatMatrix, n_tokens: int) -> dict[str, Any]:
    """Return the body of an embedding reply."""
    rows: Sequence[Any] = vectors.tolist()
    if call.as_base64:
        rows = [base64.b64encode(row.astype("<f4").tobytes()).decode("ascii") for row in vectors]
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
        "model": call.model,
        "usage": {"prompt_tokens": n_tokens, "total_tokens": n_tokens},
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


def _field(body: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = body.get(name)
    if value is None and default is None:
        raise ApiError(400, f"Missing required parameter: '{name}'.", "missing_required_parameter", name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ApiError(400, f"Invalid type for '{name}': expected {kind.__name__}.", "invalid_type", name)
    return value


def _model(body: Mapping[str, Any]) -> str:
    model: str = _field(body, "model", str)
    if not model:
        raise ApiError(400, "you must provide a model parameter", None, "model")
    return model


def _message(item: object, place: int) -> Message:
    where = f"messages[{place}]"
    if not isinstance(item, dict) or item.get("role") not in _ROLE_OF:
        raise ApiError(400, f"Invalid '{where}.role': {', '.join(_ROLE_OF)}.", "invalid_value", f"{where}.role")
    content = item.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = None if None in parts else "".join(map(str, parts))
    if not isinstance(content, str):
        said = f"Invalid '{where}.content': a string or text parts are expected."
        raise ApiError(400, said, "invalid_type", f"{where}.content")
    return Message(_ROLE_OF[item["role"]], content)


def _format(asked: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return (our form, None) or (None, a schema of others')."""
    kind = asked.get("type", "text")
    if kind in ("text", "json_object"):
        return None, None
    described = asked.get("json_schema")
    if kind != "json_schema" or not isinstance(described, dict) or not isinstance(described.get("name"), str):
        said = "Invalid 'response_format': text, json_object, or json_schema with a name."
        raise ApiError(400, said, "invalid_value", "response_format")
    if described["name"] in FORMATS:
        return described["name"], None
    schema = described.get("schema")
    if not isinstance(schema, dict):
        raise ApiError(400, "Missing 'response_format.json_schema.schema'.", "invalid_value", "response_format")
    return None, schema
