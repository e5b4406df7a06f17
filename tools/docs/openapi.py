"""OpenAPI document of the HTTP APIs: the RPCs from the .proto file with its comments, and the OpenAI-compatible API."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

from tools.docs import openapi_models

PROTO = Path(__file__).parents[2] / "proto"
FILE = "hirag/query/v1/query.proto"
_INTRO = """\
The RPCs of the service as JSON over HTTP, streams as server-sent events, and an API that clients of OpenAI's API can
use. Fields are named in lowerCamelCase; requests may use the names of the .proto file too. 64-bit integers are strings
in responses. Unknown fields are refused."""
_HEADERS = (
    (
        "Connect-Timeout-Ms",
        "Milliseconds until the deadline, at most 600000; 120000 without this header.",
        {"type": "integer", "minimum": 1},
    ),
    (
        "X-Request-Id",
        "Name of the request in the log of the service; the response has it too.",
        {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    ),
)
_SCALARS: dict[int, dict[str, Any]] = {
    descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE: {"type": "number", "format": "double"},
    descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT: {"type": "number", "format": "float"},
    descriptor_pb2.FieldDescriptorProto.TYPE_INT64: {"type": ["string", "integer"], "format": "int64"},
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32: {"type": "integer", "format": "int32"},
    descriptor_pb2.FieldDescriptorProto.TYPE_BOOL: {"type": "boolean"},
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING: {"type": "string"},
}
_ID, _LIMIT = {"minLength": 1}, {"minimum": 0, "maximum": 1000}  # 0 stands for the default
_BOUNDS: dict[str, dict[str, Any]] = {  # of fields of requests, as the service checks them
    "question": _ID,
    "topN": {"minimum": 1},
    "topM": {"minimum": 1},
    "topC": {"minimum": 1},
    "contextTokens": {"minimum": 200},
    "entity": _ID,
    "source": _ID,
    "target": _ID,
    "communityId": _ID,
    "documentId": _ID,
    "maxRelations": _LIMIT,
    "maxSources": _LIMIT,
    "maxMembers": _LIMIT,
    "start": {"minimum": 0},
    "maxChars": {"minimum": 0, "maximum": 1_000_000},
}
_NEEDED = ("query", *(name for name, bounds in _BOUNDS.items() if bounds is _ID))  # fields that a request must have
_REPEATED = descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_MESSAGE, _ENUM = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, descriptor_pb2.FieldDescriptorProto.TYPE_ENUM


@cache
def page() -> str:
    """Return the document as JSON."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


def document() -> dict[str, Any]:
    """Return the document."""
    file, comments = _compiled()
    (service,) = file.service
    prefix = f"/{file.package}.{service.name}/"
    asked = set(_reached(file, [_name(method.input_type) for method in service.method]))
    schemas = {
        message.name: _message(message, (4, at), comments, in_requests=message.name in asked)
        for at, message in enumerate(file.message_type)
    }
    schemas |= {enum.name: _enum(enum, (5, at), comments) for at, enum in enumerate(file.enum_type)}
    schemas["HiragSettings"] = openapi_models.settings(schemas["Query"])
    rpcs = {
        prefix + method.name: {"post": _operation(service.name, method, comments.get((6, 0, 2, at), ""))}
        for at, method in enumerate(service.method)
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "hirag_dist query service", "version": "v1", "description": _joined(_INTRO)},
        "servers": [{"url": "/"}],
        "security": [{"token": []}, {}],
        "tags": [
            {"name": service.name, "description": comments.get((6, 0), "")},
            {"name": "OpenAI", "description": openapi_models.INTRO},
        ],
        "paths": rpcs | openapi_models.PATHS,
        "components": {
            "schemas": schemas | {"Error": _ERROR} | openapi_models.SCHEMAS,
            "parameters": {
                name: {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
                for name, text, schema in _HEADERS
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Token of the callers file; not needed where the service has none.",
                }
            },
        },
    }


def _compiled() -> tuple[descriptor_pb2.FileDescriptorProto, dict[tuple[int, ...], str]]:
    """Return the file and its comments by path, as descriptor.proto describes paths."""
    with TemporaryDirectory() as folder:
        out = Path(folder) / "set"
        flags = [f"-I{PROTO}", f"-I{files('grpc_tools') / '_proto'}", f"--descriptor_set_out={out}"]
        if protoc.main(["protoc", *flags, "--include_source_info", FILE]):
            sys.exit("protoc failed")
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    file = found.file[-1]
    places = file.source_code_info.location
    return file, {tuple(place.path): _joined(place.leading_comments) for place in places if place.leading_comments}


def _operation(tag: str, method: descriptor_pb2.MethodDescriptorProto, comment: str) -> dict[str, Any]:
    streams = method.server_streaming
    response = {"$ref": f"#/components/schemas/{_name(method.output_type)}"}
    content: dict[str, Any] = {"application/json": {"schema": response}}
    described = "The response."
    if streams:
        content = {"text/event-stream": {"schema": response}}
        described = "One message per event. A failure after the first one is the last event, `error`, with an Error."
    return {
        "operationId": method.name,
        "tags": [tag],
        "summary": comment.split(". ")[0].rstrip("."),
        "description": comment,
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name, *_ in _HEADERS],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{_name(method.input_type)}"}}},
        },
        "responses": {
            "200": {"description": described, "content": content},
            "429": _failure("Too many requests, or a quota is used up.", {"Retry-After": _RETRY_AFTER}),
            "default": _failure("The call failed; the status follows from the code."),
        },
    }


def _failure(described: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "description": described,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    return found | ({"headers": headers} if headers else {})


def _message(
    message: descriptor_pb2.DescriptorProto, path: tuple[int, ...], comments: dict[Any, str], *, in_requests: bool
) -> dict[str, Any]:
    """Return the schema of a message. Responses always hold the fields without presence."""
    entries = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    properties, required = {}, []
    for at, field in enumerate(message.field):
        schema = _field(field, entries) | (_BOUNDS.get(field.json_name, {}) if in_requests else {})
        if comment := comments.get((*path, 2, at)):
            schema = schema | {"description": comment}
        properties[field.json_name] = schema
        single = field.label != _REPEATED
        if not (field.HasField("oneof_index") or (single and field.type == _MESSAGE)):
            required.append(field.json_name)
    schema = {"type": "object", "description": comments.get(path, ""), "properties": properties}
    if in_requests:
        required = [name for name in properties if name in _NEEDED]
        schema |= {"additionalProperties": False}
    return schema | ({"required": required} if required else {})


def _field(field: descriptor_pb2.FieldDescriptorProto, entries: dict[str, Any]) -> dict[str, Any]:
    entry = entries.get(_name(field.type_name)) if field.type == _MESSAGE else None
    if entry is not None:
        return {"type": "object", "additionalProperties": _field(entry.field[1], {})}
    if field.type in (_MESSAGE, _ENUM):
        one: dict[str, Any] = {"$ref": f"#/components/schemas/{_name(field.type_name)}"}
    else:
        one = _SCALARS[field.type]
    return {"type": "array", "items": one} if field.label == _REPEATED else one


def _enum(enum: descriptor_pb2.EnumDescriptorProto, path: tuple[int, ...], comments: dict[Any, str]) -> dict[str, Any]:
    values = [f"- `{value.name}`: {comments.get((*path, 2, at), '')}" for at, value in enumerate(enum.value)]
    return {
        "type": "string",
        "enum": [value.name for value in enum.value],
        "description": "\n".join([comments.get(path, ""), "", *values]),
    }


def _reached(file: descriptor_pb2.FileDescriptorProto, names: list[str]) -> Iterator[str]:
    """Yield the messages that these hold, and themselves."""
    messages = {message.name: message for message in file.message_type}
    open_names, seen = list(names), set(names)
    while open_names:
        name = open_names.pop()
        yield name
        for field in messages[name].field:
            held = _name(field.type_name)
            if field.type == _MESSAGE and held in messages and held not in seen:
                seen.add(held)
                open_names.append(held)


def _name(full: str) -> str:
    return full.rsplit(".", 1)[-1]


def _joined(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


_RETRY_AFTER = {"description": "Seconds after which a retry may succeed.", "schema": {"type": "integer"}}
_ERROR = {
    "type": "object",
    "description": "An error in the Connect protocol.",
    "required": ["code", "message", "details"],
    "properties": {
        "code": {"type": "string", "description": "Name of the gRPC status, such as invalid_argument."},
        "message": {"type": "string"},
        "details": {
            "type": "array",
            "description": "google.rpc messages: an ErrorInfo, and where they apply a BadRequest and a RetryInfo.",
            "items": {
                "type": "object",
                "required": ["type", "value"],
                "properties": {
                    "type": {"type": "string", "description": "Name of the message."},
                    "value": {"type": "string", "description": "The message in binary form, base64."},
                    "debug": {"type": "object", "description": "The message as JSON."},
                },
            },
        },
    },
}
