"""The part of the OpenAPI document about the OpenAI-compatible API, which has no .proto file."""

from __future__ import annotations

from typing import Any

INTRO = (
    "Endpoints in the form of OpenAI's API. A model is an index with a mode: `hirag` is the default index in the "
    "default mode, `hirag/naive` the same in mode naive, `laws/local` the index laws in mode local. Parameters that "
    "are not listed are ignored, tools too, except those that would change the meaning of the reply, such as "
    "tool_choice: required: these are refused."
)


def _ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def _json(schema: dict[str, Any], described: str) -> dict[str, Any]:
    return {"description": described, "content": {"application/json": {"schema": schema}}}


def _operation(name: str, summary: str, reply: dict[str, Any], body: str = "", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": name, "tags": ["OpenAI"], "summary": summary, **more}
    if body:
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": _ref(body)}}}
    return found | {"responses": {"200": reply, "default": _json(_ref("OpenAiError"), "The request failed.")}}


def _streamed(schema: str) -> dict[str, Any]:
    reply = _json(_ref(schema), "The reply; with `stream` server-sent events, in OpenAI's form.")
    reply["content"]["text/event-stream"] = {"schema": {"type": "string"}}
    return reply


_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string", "description": "user, assistant, or another role, which is ignored."},
        "content": {
            "description": "A text, or parts of type text.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "null"}],
        },
    },
}
_COMMON = {
    "model": {"type": "string", "description": "Id of the model, as /v1/models lists it."},
    "stream": {"type": ["boolean", "null"]},
    "hirag": {
        "anyOf": [_ref("HiragSettings"), {"type": "null"}],
        "description": "Settings of the retrieval and of this API.",
    },
}
_ANNOTATION = {
    "type": "object",
    "required": ["start_index", "end_index", "title", "url"],
    "properties": {
        "start_index": {"type": "integer", "description": "First character of the marker in the text."},
        "end_index": {"type": "integer", "description": "Character after the marker."},
        "title": {"type": "string"},
        "url": {"type": "string", "description": "Address of the cited place or document, or urn:hirag:KIND:ID."},
    },
}
_SETTINGS = {
    "history": {
        "type": "boolean",
        "default": True,
        "description": "Whether earlier messages go in front of the question.",
    },
    "source_list": {
        "type": "boolean",
        "default": False,
        "description": "Whether the cited sources are listed after the text.",
    },
}


def settings(query: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the settings of a request, from that of Query."""
    fields = {name: schema for name, schema in query["properties"].items() if name not in _NOT_SET}
    return {
        "type": "object",
        "description": "Fields of Query except question, mode and vector, and two settings of this API.",
        "properties": fields | _SETTINGS,
        "additionalProperties": False,
    }


_NOT_SET = ("question", "mode", "vector")
SCHEMAS: dict[str, Any] = {
    "ChatCompletionRequest": {
        "type": "object",
        "required": ["model", "messages"],
        "properties": {
            **_COMMON,
            "messages": {"type": "array", "minItems": 1, "items": _MESSAGE},
            "stream_options": {"type": ["object", "null"], "properties": {"include_usage": {"type": "boolean"}}},
        },
    },
    "ChatCompletion": {
        "type": "object",
        "required": ["id", "object", "created", "model", "choices", "usage"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": "chat.completion"},
            "created": {"type": "integer"},
            "model": {"type": "string"},
            "system_fingerprint": {"type": ["string", "null"], "description": "Id of the snapshot."},
            "choices": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["index", "message", "finish_reason"],
                    "properties": {
                        "index": {"type": "integer"},
                        "finish_reason": {"enum": ["stop", "length", "content_filter"]},
                        "message": {
                            "type": "object",
                            "required": ["role", "content", "annotations"],
                            "properties": {
                                "role": {"const": "assistant"},
                                "content": {"type": "string"},
                                "annotations": {
                                    "type": "array",
                                    "items": {
                                        "type": "object",
                                        "required": ["type", "url_citation"],
                                        "properties": {"type": {"const": "url_citation"}, "url_citation": _ANNOTATION},
                                    },
                                },
                            },
                        },
                    },
                },
            },
            "usage": {
                "type": "object",
                "required": ["prompt_tokens", "completion_tokens", "total_tokens"],
                "additionalProperties": {"type": "integer"},
            },
            "hirag": {"type": "object", "description": "Question, mode, snapshot, citations and answering model."},
        },
    },
    "ResponsesRequest": {
        "type": "object",
        "required": ["model", "input"],
        "properties": {
            **_COMMON,
            "input": {"anyOf": [{"type": "string"}, {"type": "array", "items": _MESSAGE}]},
        },
    },
    "Response": {
        "type": "object",
        "description": "A response in OpenAI's form.",
        "required": ["id", "object", "created_at", "model", "output", "status", "usage"],
    },
    "Model": {
        "type": "object",
        "required": ["id", "object", "created", "owned_by", "name"],
        "properties": {
            "id": {"type": "string"},
            "object": {"const": "model"},
            "created": {"type": "integer"},
            "owned_by": {"const": "hirag-dist"},
            "name": {"type": "string", "description": "Title of the index, and the mode."},
        },
    },
    "ModelList": {
        "type": "object",
        "required": ["object", "data"],
        "properties": {"object": {"const": "list"}, "data": {"type": "array", "items": _ref("Model")}},
    },
    "OpenAiError": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["message", "type", "param", "code"],
                "properties": {
                    "message": {"type": "string"},
                    "type": {"type": "string"},
                    "param": {"type": ["string", "null"]},
                    "code": {"type": ["string", "null"]},
                },
            }
        },
    },
}
PATHS: dict[str, Any] = {
    "/v1/models": {
        "get": _operation(
            "listModels", "List the indexes that the caller may ask, with their modes", _json(_ref("ModelList"), "All.")
        )
    },
    "/v1/models/{model}": {
        "get": _operation(
            "retrieveModel",
            "Describe a model",
            _json(_ref("Model"), "The model."),
            parameters=[{"name": "model", "in": "path", "required": True, "schema": {"type": "string"}}],
        )
    },
    "/v1/chat/completions": {
        "post": _operation(
            "createChatCompletion",
            "Answer the question that a conversation ends with",
            _streamed("ChatCompletion"),
            "ChatCompletionRequest",
        )
    },
    "/v1/responses": {
        "post": _operation(
            "createResponse",
            "Answer a question, or the one that a conversation ends with",
            _streamed("Response"),
            "ResponsesRequest",
        )
    },
}
