"""Replies of /v1/responses: the whole object, and the events of a streamed one. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from hirag_dist.service.http_api.openai_replies import citation_marks, event, facts
from hirag_dist.wire._pb import query_pb2 as pb

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


class ResponsesReply:
    """A reply of /v1/responses, made from the parts of an answer.

    Args:
        model: as the request gave it.
        request_id: of the call.
        request: to the service.
    """

    def __init__(self, model: str, request_id: str, request: pb.AnswerRequest) -> None:
        self._model = model
        self._id = f"resp_{request_id}"
        self._item_id = f"msg_{request_id}"
        self._created = int(time.time())
        self._question = request.query.question
        self._index = request.index
        self._retrieval: pb.Retrieval | None = None
        self._text: list[str] = []
        self._sent = 0

    def retrieved(self, retrieval: pb.Retrieval) -> None:
        """Keep the facts of the retrieval that the reply names."""
        self._retrieval = retrieval

    def completion(self, answer: pb.FinalAnswer) -> dict[str, Any]:
        """Return the whole reply."""
        read, written = answer.input_tokens, answer.output_tokens
        usage = {
            "input_tokens": read,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": read + written,
        }
        status = _status(answer)
        item = self._item(status, [_part(answer.text, self._annotations(answer))])
        why = {"reason": _INCOMPLETE[answer.finish_reason]} if status == "incomplete" else None
        hirag = facts(self._question, self._retrieval, answer)
        return self._response(status, [item]) | {"incomplete_details": why, "usage": usage, "hirag": hirag}

    def first_events(self) -> Iterator[bytes]:
        """Yield the events that begin a streamed reply."""
        yield self._event("response.created", {"response": self._response("in_progress", [])})
        yield self._event("response.in_progress", {"response": self._response("in_progress", [])})
        item = self._item("in_progress", [])
        yield self._event("response.output_item.added", {"output_index": 0, "item": item})
        yield self._event("response.content_part.added", self._place() | {"part": _part("", [])})

    def text_event(self, text: str) -> bytes:
        """Return the event with a piece of the text."""
        self._text.append(text)
        return self._event("response.output_text.delta", self._place() | {"delta": text, "logprobs": []})

    def last_events(self, answer: pb.FinalAnswer, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the events that end a streamed reply: citations, text, message and the whole reply."""
        found = self._annotations(answer)
        for at, each in enumerate(found):
            added = self._place() | {"annotation_index": at, "annotation": each}
            yield self._event("response.output_text.annotation.added", added)
        yield self._event("response.output_text.done", self._place() | {"text": answer.text, "logprobs": []})
        part = _part(answer.text, found)
        yield self._event("response.content_part.done", self._place() | {"part": part})
        status = _status(answer)
        item = self._item(status, [part])
        yield self._event("response.output_item.done", {"output_index": 0, "item": item})
        yield self._event(f"response.{status}", {"response": self.completion(answer)})

    def error_event(self, error: Mapping[str, Any]) -> bytes:
        """Return the event that ends a streamed reply that failed."""
        fault = error["error"]
        failed = {"code": "server_error", "message": fault["message"]}
        item = self._item("incomplete", [_part("".join(self._text), [])])
        return self._event("response.failed", {"response": self._response("failed", [item]) | {"error": failed}})

    def _response(self, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "response",
            "created_at": self._created,
            "status": status,
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "model": self._model,
            "output": output,
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": None,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": None,
            "truncation": "disabled",
            "usage": None,
        }

    def _item(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self._item_id, "type": "message", "role": "assistant", "status": status, "content": content}

    def _annotations(self, answer: pb.FinalAnswer) -> list[dict[str, Any]]:
        found = citation_marks(answer.text, answer.citations, self._index)
        return [{"type": "url_citation", **each} for each in found]

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _event(self, name: str, fields: Mapping[str, Any]) -> bytes:
        self._sent += 1
        return event({"type": name, "sequence_number": self._sent - 1, **fields}, name)


def _status(answer: pb.FinalAnswer) -> str:
    return "incomplete" if answer.finish_reason in _INCOMPLETE else "completed"


def _part(text: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": found, "logprobs": []}
