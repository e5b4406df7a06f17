"""The OpenAI-compatible API: /v1/models, /v1/chat/completions and /v1/responses."""

from __future__ import annotations

import json
import logging
import math
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

import grpc
from aiohttp import web

from hirag_dist.errors import ServiceError
from hirag_dist.service.http_api.gateway import Gateway, GatewayCall, StatusError, error_headers, error_of, http_status
from hirag_dist.service.http_api.openai_replies import CompletionReply, ResponsesReply, model_list, model_object
from hirag_dist.service.http_api.openai_requests import (
    DEFAULT_MODEL,
    Asked,
    BadRequest,
    chat_request,
    model_not_found,
    resolve_model,
    responses_request,
)
from hirag_dist.service.http_api.rpc_routes import (
    INTERNAL,
    ApiRequests,
    BodyTooLarge,
    dump,
    request_ids,
)
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.records import MODE_NAMES

logger = logging.getLogger(__name__)

PREFIX = "/v1/"
_PAGE_SIZE = 1000  # indexes of one ListIndexes
_Reply: TypeAlias = CompletionReply | ResponsesReply
_Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class OpenAiRoutes:
    """Handlers of the OpenAI-compatible API. A model is an index with a mode."""

    def __init__(self, requests: ApiRequests) -> None:
        self._requests = requests
        self._created = int(time.time())

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the routes."""
        router.add_get(f"{PREFIX}models", _explained(self._models))
        router.add_get(PREFIX + "models/{model:.+}", _explained(self._model))
        router.add_post(f"{PREFIX}chat/completions", _explained(self._chat))
        router.add_post(f"{PREFIX}responses", _explained(self._responses))
        router.add_route("*", PREFIX + "{path:.*}", _explained(_unknown))

    async def _models(self, request: web.Request) -> web.StreamResponse:
        call = self._requests.call(request)
        with self._requests.admitted() as gateway:
            entries = await _indexes(gateway, call)
        return _json_response(model_list(entries, self._created), call)

    async def _model(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["model"]
        index, mode = resolve_model(name)
        call = self._call(request, index)
        with self._requests.admitted() as gateway:
            try:
                await gateway.unary("DescribeIndex", pb.DescribeIndexRequest(index=index).SerializeToString(), call)
            except StatusError as error:
                if error.code is grpc.StatusCode.NOT_FOUND:
                    raise model_not_found(name) from error
                raise
        return _json_response(model_object(index, MODE_NAMES.get(mode, ""), "", self._created), call)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        asked = chat_request(await self._json(request))
        call = self._call(request, asked.request.index)
        reply = CompletionReply(asked.model, call.request_id, asked.request, with_sources=asked.source_list)
        return await self._answer(request, asked, call, reply)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        asked = responses_request(await self._json(request))
        call = self._call(request, asked.request.index)
        reply = ResponsesReply(asked.model, call.request_id, asked.request, with_sources=asked.source_list)
        return await self._answer(request, asked, call, reply)

    async def _answer(self, request: web.Request, asked: Asked, call: GatewayCall, reply: _Reply) -> web.StreamResponse:
        with self._requests.admitted() as gateway:
            async with aclosing(_parts(gateway, asked, call)) as parts:
                if not asked.stream:
                    return _json_response(await _completion(parts, reply), call)
                return await self._requests.stream(request, call, _events(parts, reply, asked))

    async def _json(self, request: web.Request) -> Mapping[str, Any]:
        if request.content_type != "application/json":
            raise BadRequest("requests are JSON: send Content-Type: application/json", status=415)
        try:
            body = json.loads((await self._requests.body(request)).decode("utf-8"))
        except (ValueError, RecursionError) as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeError) else str(error)
            raise BadRequest(f"the request is no JSON: {why}") from None
        if not isinstance(body, dict):
            raise BadRequest("the request must be a JSON object")
        return body

    def _call(self, request: web.Request, index: str = "") -> GatewayCall:
        call = self._requests.call(request)
        return replace(call, or_default=index == DEFAULT_MODEL)


async def _indexes(gateway: Gateway, call: GatewayCall) -> list[pb.IndexEntry]:
    entries: list[pb.IndexEntry] = []
    asked = pb.ListIndexesRequest(page_size=_PAGE_SIZE)
    while True:
        reply = pb.ListIndexesResponse.FromString(await gateway.unary("ListIndexes", asked.SerializeToString(), call))
        entries += reply.indexes
        if not reply.next_page_token:
            return entries
        asked.page_token = reply.next_page_token


async def _parts(gateway: Gateway, asked: Asked, call: GatewayCall) -> AsyncGenerator[pb.AnswerResponse, None]:
    reader = StopReader(asked.stops)
    async with aclosing(gateway.stream("Answer", asked.request.SerializeToString(), call)) as messages:
        async for message in messages:
            part = pb.AnswerResponse.FromString(message)
            if part.HasField("text"):
                part.text = reader.feed(part.text)
            elif part.HasField("answer"):
                yield pb.AnswerResponse(text=reader.end())
                part.answer.CopyFrom(cut_answer(part.answer, asked.stops))
            yield part


async def _completion(parts: AsyncGenerator[pb.AnswerResponse, None], reply: _Reply) -> Mapping[str, Any]:
    answer: pb.FinalAnswer | None = None
    async for part in parts:
        if part.HasField("retrieval"):
            reply.retrieval = part.retrieval
        elif part.HasField("answer"):
            answer = part.answer  # read on: a call that is left before its status counts as cancelled
    if answer is None:
        raise error_of(ServiceError("the service ended its stream without an answer"))
    return reply.completion(answer)


async def _events(
    parts: AsyncGenerator[pb.AnswerResponse, None], reply: _Reply, asked: Asked
) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events. An error after the first one becomes an event; an earlier one is raised."""
    begun = False
    answer: pb.FinalAnswer | None = None
    try:
        async for part in parts:
            if part.HasField("retrieval"):
                reply.retrieval = part.retrieval
            if not begun:
                begun = True
                for event in reply.first_events():
                    yield event
            if part.text:
                yield reply.text_event(part.text)
            elif part.HasField("answer"):
                answer = part.answer
        if answer is None:
            raise error_of(ServiceError("the service ended its stream without an answer"))
        for event in reply.last_events(answer, include_usage=asked.include_usage):
            yield event
    except StatusError as error:
        if not begun:
            raise
        yield reply.error_event(error_body(error))


def _explained(handler: _Handler) -> _Handler:
    """Return a handler that replies to errors in OpenAI's form."""

    async def explained(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except (StatusError, BadRequest, BodyTooLarge) as error:
            return error_response(error)
        except ConnectionError:  # the client disconnected
            raise
        except Exception:
            logger.exception("request %.200r failed", request.path)
            return error_response(Exception(INTERNAL))

    return explained


def error_response(error: Exception, status: int | None = None) -> web.Response:
    """Return an error as the reply. Its headers say when to ask again, in seconds and in milliseconds too.

    OpenAI's clients repeat every 5xx unless told not to, and would pay for a retrieval and an answer three times: they
    are to repeat what was refused before any work. A model that is out has been tried several times by the service.
    """
    headers = {"X-Should-Retry": "false"}
    if isinstance(error, StatusError):
        headers |= error_headers(error)
        if error.retry_after_s is not None:
            headers["Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))
        if error.reason in _REFUSED_BEFORE_WORK:
            del headers["X-Should-Retry"]
    return web.Response(
        body=dump(error_body(error)),
        status=error_status(error) if status is None else status,
        content_type="application/json",
        headers=headers,
    )


async def _unknown(request: web.Request) -> web.StreamResponse:
    raise BadRequest(
        f"there is no {request.method} {request.path[:200]}; this API has GET models, POST chat/completions and "
        "POST responses",
        code="unknown_url",
        status=404,
    )


def _json_response(value: Mapping[str, Any], call: GatewayCall) -> web.Response:
    return web.Response(body=dump(value), content_type="application/json", headers=request_ids(call))


_REQUEST, _SERVER, _RATE = "invalid_request_error", "server_error", "rate_limit_error"
_CODES = {
    grpc.StatusCode.UNAUTHENTICATED: ("authentication_error", "invalid_api_key"),
    grpc.StatusCode.PERMISSION_DENIED: ("permission_error", "permission_denied"),
    grpc.StatusCode.NOT_FOUND: (_REQUEST, "model_not_found"),
    grpc.StatusCode.INVALID_ARGUMENT: (_REQUEST, "invalid_value"),
    grpc.StatusCode.RESOURCE_EXHAUSTED: (_RATE, "rate_limit_exceeded"),
    grpc.StatusCode.DEADLINE_EXCEEDED: (_SERVER, "timeout"),
}
# Field of the service → parameter of the API.
_PARAMS = {"": None, "question": "messages", "mode": "model", "index": "model"}
_REFUSED_BEFORE_WORK = ("OVERLOADED", "QUOTA_EXCEEDED", "NOT_READY")  # reasons of errors
_TOO_LARGE = "REQUEST_TOO_LARGE"  # reason of a reply that is larger than a message


def error_body(error: Exception) -> dict[str, Any]:
    """Return an error as a JSON object."""
    message, kind, param, code = str(error), _REQUEST, None, None
    match error:
        case BadRequest():
            param, code = error.param, error.code
        case BodyTooLarge():
            code = "request_too_large"
        case StatusError():
            kind, code = _CODES.get(error.code, (_SERVER, error.reason.lower() or error.code.name.lower()))
            if error.code is grpc.StatusCode.NOT_FOUND:
                param = "model"
            elif error.code is grpc.StatusCode.INVALID_ARGUMENT:
                field = error.json_field
                param = _PARAMS.get(field, f"hirag.{field}")
                message = error.message_with(param or "")
            elif error.reason == "QUOTA_EXCEEDED":
                code = "insufficient_quota"
        case _:
            kind = _SERVER
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_status(error: Exception) -> int:
    """Return the HTTP status of an error."""
    match error:
        case BadRequest():
            return error.status
        case BodyTooLarge():
            return 413
        case StatusError():
            return 413 if error.reason == _TOO_LARGE else http_status(error.code)
    return 500


class StopReader:
    """Passes on the pieces of a streamed text up to the first stop sequence.

    Characters that may be the beginning of a sequence are kept back until the next piece.

    Args:
        stops: the sequences, without empty ones.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._longest = max(map(len, stops), default=0)
        self._kept = ""
        self._stopped = False

    def feed(self, piece: str) -> str:
        """Return the text that can be shown after another piece; it may be empty."""
        if self._stopped:
            return ""
        text = self._kept + piece
        shown = cut_text(text, self._stops)
        self._stopped = len(shown) < len(text)
        if self._stopped:
            self._kept = ""
            return shown
        for start in range(max(len(text) - self._longest + 1, 0), len(text)):
            if any(stop.startswith(text[start:]) for stop in self._stops):
                self._kept = text[start:]
                return text[:start]
        self._kept = ""
        return text

    def end(self) -> str:
        """Return the text that was kept back."""
        kept, self._kept = self._kept, ""
        return kept


def cut_text(text: str, stops: Sequence[str]) -> str:
    r"""Return a text up to the first stop sequence.

    >>> cut_text("The keeper.\nObservation: none", ["\nObservation", "END"])
    'The keeper.'
    """
    found = re.search("|".join(map(re.escape, stops)), text) if stops else None
    return text if found is None else text[: found.start()]


def cut_answer(answer: pb.FinalAnswer, stops: Sequence[str]) -> pb.FinalAnswer:
    """Return an answer whose text ends before the first stop sequence, with the citations of that text."""
    text = cut_text(answer.text, stops)
    if text == answer.text:
        return answer
    cut = pb.FinalAnswer()
    cut.CopyFrom(answer)
    cut.text, cut.finish_reason = text, "stop"
    del cut.citations[:]
    cut.citations.extend(each for each in answer.citations if f"[{each.ref}]" in text)
    return cut
