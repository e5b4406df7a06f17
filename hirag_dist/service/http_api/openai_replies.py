"""Replies of the OpenAI-compatible API: models, chat completions and their chunks, citations. Pure functions."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from google.protobuf import json_format

from hirag_dist.service.http_api.openai_requests import DEFAULT_MODEL
from hirag_dist.service.http_api.rpc_routes import dump
from hirag_dist.types import MAP_REDUCE
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.addresses import SCHEME, resource_uri
from hirag_dist.wire.records import MODE_NAMES, MODES

OWNER = "hirag-dist"
_MAX_WITH_MODES = 100  # indexes for which each mode is listed as a model of its own
_RESOURCES = {"entity": "entities", "community": "reports", "chunk": "documents"}
_OWN = ("urn:", f"{SCHEME}:")  # addresses that lead nowhere in a browser
_MARKER = re.compile(r"\[([ERKCS]\d+)\]")
_LISTED_MODES = tuple(mode for mode in MODES if mode not in MAP_REDUCE)


def model_list(entries: Sequence[pb.IndexEntry], created: int) -> dict[str, Any]:
    """Return the models: for each index its name, and its name with each mode, if there are not too many.

    Args:
        entries: the indexes that the caller may ask.
        created: time for `created`, in seconds since 1970.
    """
    modes = ("", *_LISTED_MODES) if len(entries) <= _MAX_WITH_MODES else ("",)
    models = [model_object(entry.name, mode, entry.title, created) for entry in entries for mode in modes]
    if any(entry.name and entry.default for entry in entries):
        models = [model_object("", mode, "", created) for mode in modes] + models
    return {"object": "list", "data": models}


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
        "owned_by": OWNER,
        "name": f"{shown} ({mode})" if mode else shown,
    }


def url_of(citation: pb.Citation, index: str) -> str:
    """Return the address of what is cited: of the place in the document, of the document, or else its resource URI.

    >>> url_of(pb.Citation(ref="E2", kind="entity", id="e2"), "laws")
    'hirag://laws/entities/e2'
    """
    link = next((place.link for place in citation.places if place.link), "")
    kind = _RESOURCES.get(citation.kind)
    own = f"urn:hirag:{citation.kind}:{citation.id}"  # relations and claims are no resources
    if kind is not None:
        own = resource_uri(index, kind, citation.document_id or citation.id)
    return link or citation.uri or own


def citation_marks(text: str, citations: Iterable[pb.Citation], index: str) -> list[dict[str, Any]]:
    """Return each marker of a citation in the text with its title and address.

    `start_index` and `end_index` are Unicode code points of the text, the end behind the marker.
    """
    known = {citation.ref: citation for citation in citations}
    return [
        {
            "start_index": found.start(),
            "end_index": found.end(),
            "title": known[found[1]].title,
            "url": url_of(known[found[1]], index),
        }
        for found in _MARKER.finditer(text)
        if found[1] in known
    ]


def source_list(citations: Iterable[pb.Citation]) -> str:
    """Return the cited sources as text, a line each; empty without citations."""
    lines = []
    for citation in citations:
        url = url_of(citation, "").partition(":~:")[0].rstrip("#")  # without the marked text
        shown = "" if url.startswith(_OWN) else f" ({url})"
        lines.append(f"[{citation.ref}] {citation.title or citation.kind}{shown}")
    return "\n\nSources:\n" + "\n".join(lines) if lines else ""


class CompletionReply:
    """A reply of /v1/chat/completions, made from the parts of an answer.

    Args:
        model: as the request gave it.
        request_id: of the call.
        request: to the service.
        with_sources: whether the cited sources are listed after the text.
    """

    def __init__(self, model: str, request_id: str, request: pb.AnswerRequest, *, with_sources: bool) -> None:
        self._head = {"id": f"chatcmpl-{request_id}", "created": int(time.time()), "model": model}
        self._question = request.query.question
        self._index = request.index
        self._with_sources = with_sources
        self._retrieval: pb.Retrieval | None = None

    def retrieved(self, retrieval: pb.Retrieval) -> None:
        """Keep the facts of the retrieval that the reply names."""
        self._retrieval = retrieval

    def completion(self, answer: pb.FinalAnswer) -> dict[str, Any]:
        """Return the whole reply."""
        text = answer.text + self._sources(answer)
        message = {
            "role": "assistant",
            "content": text,
            "refusal": None,
            "annotations": _nested(citation_marks(answer.text, answer.citations, self._index)),
        }
        return {
            **self._object("chat.completion"),
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}],
            "usage": _usage(answer),
            "hirag": facts(self._question, self._retrieval, answer),
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
        delta = {"annotations": _nested(citation_marks(answer.text, answer.citations, self._index))}
        yield event(self._chunk(delta, _finish(answer)) | {"hirag": facts(self._question, self._retrieval, answer)})
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
        snapshot = None if self._retrieval is None else self._retrieval.snapshot_id
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


def usage_counts(answer: pb.FinalAnswer) -> tuple[int, int]:
    """Return the tokens that the model read and wrote."""
    return answer.input_tokens, answer.output_tokens


def _usage(answer: pb.FinalAnswer) -> dict[str, int]:
    read, written = usage_counts(answer)
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _finish(answer: pb.FinalAnswer) -> str:
    return answer.finish_reason or "stop"  # empty of an earlier service


def _nested(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "url_citation", "url_citation": dict(each)} for each in found]
