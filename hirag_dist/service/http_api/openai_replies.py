"""Replies of the OpenAI-compatible API: models, chat completions, responses, citations. Pure functions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from hirag_dist.core.prompts.reply_validation import REPETITION
from hirag_dist.service.http_api.openai_requests import DEFAULT_MODEL
from hirag_dist.service.http_api.rpc_routes import dump
from hirag_dist.types import MAP_REDUCE
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODE_NAMES, MODES

_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter", REPETITION: "max_output_tokens"}


class ResponsesReply:
    """A reply of /v1/responses, made from the parts of an answer.

    Args:
        model: Model as the request named it.
        with_sources: whether the cited sources are listed after the text.

    Attributes:
        retrieval: of the answer, whose facts the reply names; None before it came.
    """

    def __init__(self, model: str, request_id: str, request: pb.AnswerRequest, *, with_sources: bool) -> None:
        self._model = model
        self._with_sources = with_sources
        self._id = f"resp_{request_id}"
        self._item_id = f"msg_{request_id}"
        self._created = int(time.time())
        self._question = request.query.question
        self.retrieval: pb.Retrieval | None = None
        self._text: list[str] = []
        self._sent = 0

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
        item = self._item(status, [self._whole_part(answer)])
        why = {"reason": _INCOMPLETE[answer.finish_reason]} if status == "incomplete" else None
        hirag = facts(self._question, self.retrieval, answer)
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
        """Yield the events that end a streamed reply: sources, citations, text, message and the whole reply."""
        part = self._whole_part(answer)
        if sources := part["text"].removeprefix(answer.text):
            yield self.text_event(sources)
        for at, each in enumerate(part["annotations"]):
            added = self._place() | {"annotation_index": at, "annotation": each}
            yield self._event("response.output_text.annotation.added", added)
        yield self._event("response.output_text.done", self._place() | {"text": part["text"], "logprobs": []})
        yield self._event("response.content_part.done", self._place() | {"part": part})
        status = _status(answer)
        item = self._item(status, [part])
        yield self._event("response.output_item.done", {"output_index": 0, "item": item})
        yield self._event(f"response.{status}", {"response": self.completion(answer)})

    def error_event(self, error: Mapping[str, Any]) -> bytes:
        """Return the event that ends a streamed reply that failed."""
        failed = {"code": "server_error", "message": error["error"]["message"]}
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

    def _whole_part(self, answer: pb.FinalAnswer) -> dict[str, Any]:
        marks = [{"type": "url_citation", **each} for each in citation_marks(answer.text, answer.citations)]
        return _part(answer.text + (source_list(answer.citations) if self._with_sources else ""), marks)

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._item_id, "output_index": 0, "content_index": 0}

    def _event(self, name: str, fields: Mapping[str, Any]) -> bytes:
        self._sent += 1
        return event({"type": name, "sequence_number": self._sent - 1, **fields}, name)


def _status(answer: pb.FinalAnswer) -> str:
    return "incomplete" if answer.finish_reason in _INCOMPLETE else "completed"


def _part(text: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": found, "logprobs": []}


_MAX_WITH_MODES = 100  # indexes for which each mode is listed as a model of its own
_URN = "urn:hirag:"  # of what has no address that leads anywhere in a browser
_MARKER = re.compile(r"\[([ERKCS]\d+)\]")
_LISTED_MODES = tuple(mode for mode in MODES if mode not in MAP_REDUCE)


def model_list(entries: Sequence[pb.IndexEntry], created: int) -> dict[str, Any]:
    """Return the models: for each index its name, and its name with each mode, if there are not too many.

    The default index is `DEFAULT_MODEL` too, unless an index has that name. No id is there twice.

    Args:
        entries: the indexes that the caller may ask.
        created: time for `created`, in seconds since 1970.
    """
    modes = ("", *_LISTED_MODES) if len(entries) <= _MAX_WITH_MODES else ("",)
    models = [model_object(entry.name, mode, entry.title, created) for entry in entries for mode in modes]
    if any(entry.name and entry.default for entry in entries):
        models = [model_object("", mode, "", created) for mode in modes] + models
    return {"object": "list", "data": list({model["id"]: model for model in models}.values())}


def model_object(index: str, mode: str, title: str, created: int) -> dict[str, Any]:
    """Return a model. `name` is for people; OpenAI's own models have none.

    >>> model_object("laws", "naive", "Laws", 0)["id"], model_object("", "", "", 0)["id"]
    ('laws/naive', 'hirag')
    """
    name = index or DEFAULT_MODEL
    shown = title or name
    return {
        "id": f"{name}/{mode}" if mode else name,
        "object": "model",
        "created": created,
        "owned_by": "hirag-dist",
        "name": f"{shown} ({mode})" if mode else shown,
    }


def url_of(citation: pb.Citation) -> str:
    """Return the address of what is cited: of the place in the document, of the document, or else its URN.

    >>> url_of(pb.Citation(ref="E2", kind="entity", id="e2"))
    'urn:hirag:entity:e2'
    """
    link = next((place.link for place in citation.places if place.link), "")
    return link or citation.uri or f"{_URN}{citation.kind}:{citation.id}"


def citation_marks(text: str, citations: Iterable[pb.Citation]) -> list[dict[str, Any]]:
    """Return each marker of a citation in the text with its title and address.

    `start_index` and `end_index` are Unicode code points of the text, the end behind the marker.
    """
    known = {citation.ref: citation for citation in citations}
    return [
        {
            "start_index": found.start(),
            "end_index": found.end(),
            "title": known[found[1]].title,
            "url": url_of(known[found[1]]),
        }
        for found in _MARKER.finditer(text)
        if found[1] in known
    ]


def source_list(citations: Iterable[pb.Citation]) -> str:
    """Return the cited sources as text, a line each; empty without citations."""
    lines = []
    for citation in citations:
        url = url_of(citation).partition(":~:")[0].rstrip("#")  # without the marked text
        shown = "" if url.startswith(_URN) else f" ({url})"
        lines.append(f"[{citation.ref}] {citation.title or citation.kind}{shown}")
    return "\n\nSources:\n" + "\n".join(lines) if lines else ""


class CompletionReply:
    """A reply of /v1/chat/completions, made from the parts of an answer.

    Args:
        model: Model as the request named it.
        with_sources: whether the cited sources are listed after the text.

    Attributes:
        retrieval: as of `ResponsesReply`.
    """

    def __init__(self, model: str, request_id: str, request: pb.AnswerRequest, *, with_sources: bool) -> None:
        self._head = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": model}
        self._question = request.query.question
        self._with_sources = with_sources
        self.retrieval: pb.Retrieval | None = None

    def completion(self, answer: pb.FinalAnswer) -> dict[str, Any]:
        """Return the whole reply."""
        text = answer.text + self._sources(answer)
        message = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": _annotations(answer),
        }
        return {
            **self._object("chat.completion"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}],
            "usage": _usage(answer),
            "hirag": facts(self._question, self.retrieval, answer),
        }

    def first_events(self) -> Iterator[bytes]:
        """Yield the chunk that begins a streamed reply."""
        yield event(self._chunk({"role": "assistant", "content": ""}))

    def text_event(self, text: str) -> bytes:
        """Return a chunk with a piece of the text."""
        return event(self._chunk({"content": text}))

    def last_events(self, answer: pb.FinalAnswer, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the chunks that end a streamed reply: citations, and on request the numbers of tokens."""
        if sources := self._sources(answer):
            yield self.text_event(sources)
        delta = {"annotations": _annotations(answer)}
        yield event(self._chunk(delta, _finish(answer)) | {"hirag": facts(self._question, self.retrieval, answer)})
        if include_usage:
            yield event({**self._object("chat.completion.chunk"), "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def error_event(self, error: Mapping[str, Any]) -> bytes:
        """Return the event that ends a streamed reply that failed."""
        return event(error)

    def _chunk(self, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._object("chat.completion.chunk"), "choices": [choice]}

    def _object(self, kind: str) -> dict[str, Any]:
        snapshot = None if self.retrieval is None else self.retrieval.snapshot_id
        return {**self._head, "object": kind, "system_fingerprint": snapshot}

    def _sources(self, answer: pb.FinalAnswer) -> str:
        return source_list(answer.citations) if self._with_sources else ""


def event(value: Mapping[str, Any], name: str = "") -> bytes:
    r"""Return a server-sent event.

    >>> event({"a": 1}, "response.created")
    b'event: response.created\ndata: {"a":1}\n\n'
    """
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + dump(value) + b"\n\n"


def facts(question: str, retrieval: pb.Retrieval | None, answer: pb.FinalAnswer) -> dict[str, Any]:
    """Return the facts without a field in OpenAI's form: question, mode, snapshot, citations, answering model."""
    found = retrieval or pb.Retrieval()
    return {
        "question": question,
        "mode": MODE_NAMES.get(found.mode, ""),
        "snapshot_id": found.snapshot_id,
        "partial": list(found.partial),
        "note": found.note,
        "answered_by": answer.model,
        "citations": [json_format.MessageToDict(each) for each in answer.citations],
    }


def _usage(answer: pb.FinalAnswer) -> dict[str, int]:
    read, written = answer.input_tokens, answer.output_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _finish(answer: pb.FinalAnswer) -> str:
    if answer.finish_reason == REPETITION:  # a reason for which the API has no word
        return "length"
    return answer.finish_reason or "stop"  # empty of an earlier service


def _annotations(answer: pb.FinalAnswer) -> list[dict[str, Any]]:
    marks = citation_marks(answer.text, answer.citations)
    return [{"type": "url_citation", "url_citation": mark} for mark in marks]
