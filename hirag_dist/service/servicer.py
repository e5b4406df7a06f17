"""The RPCs: messages in, the engine's work, messages out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from hirag_dist.errors import HiragError
from hirag_dist.service._pb import query_pb2 as pb
from hirag_dist.service.access import Access, Context
from hirag_dist.service.callers import Caller
from hirag_dist.service.convert import (
    answer_to_proto,
    info_to_proto,
    level_to_proto,
    query_from_proto,
    retrieval_to_proto,
    text_to_proto,
)
from hirag_dist.service.engine import Engine
from hirag_dist.service.gate import Gate
from hirag_dist.service.holder import EngineHolder
from hirag_dist.service.status import (
    REQUEST_ID_KEY,
    DeadlinePassed,
    Overloaded,
    Refused,
    TooLarge,
    message_of,
    status_of,
    trailers_of,
)
from hirag_dist.types import Answer, Query, Retrieval

_LOG = logging.getLogger(__name__)
_MARGIN_S = 0.05  # kept back from the deadline, so that a partial result still reaches the caller

T = TypeVar("T")
R = TypeVar("R", pb.RetrieveResponse, pb.RetrieveStreamResponse, pb.AnswerResponse)
_Request = pb.RetrieveRequest | pb.RetrieveStreamRequest | pb.AnswerRequest


@dataclass(slots=True)
class _Call:
    """A request at work."""

    caller: Caller
    engine: Engine
    access: Access
    context: Context

    def query(self, request: _Request) -> Query:
        query = query_from_proto(request.query)
        self.access.mode = query.mode or ""
        return replace(query, reach=self.caller.reach)

    def deadline_s(self) -> float | None:
        """What the engine may take, in seconds, or None for any time."""
        remaining = self.context.time_remaining()
        return None if remaining is None else max(remaining - min(_MARGIN_S, remaining / 10), 0.0)

    def message(self, retrieval: Retrieval, request: _Request) -> pb.Retrieval:
        self.access.mode, self.access.partial = retrieval.mode, ",".join(retrieval.partial)
        return retrieval_to_proto(
            retrieval, omit_context=request.omit_context, omit_source_text=request.omit_source_text
        )


class QueryServicer:
    """Answers `hirag.query.v1.QueryService` from the holder's engine.

    Args:
        holder: gives the engine of the current snapshot.
        gate: says who calls.
        max_concurrent: requests at work at once; more are turned away at once.
        max_message_bytes: of a reply.
    """

    def __init__(self, holder: EngineHolder, gate: Gate, *, max_concurrent: int, max_message_bytes: int) -> None:
        self._holder = holder
        self._gate = gate
        self._max_concurrent = max_concurrent
        self._max_message_bytes = max_message_bytes
        self._at_work = 0

    @property
    def at_work(self) -> int:
        """Requests being answered now."""
        return self._at_work

    async def Retrieve(  # noqa: N802 - the names are the protocol's
        self, request: pb.RetrieveRequest, context: Context
    ) -> pb.RetrieveResponse:
        """Return the whole retrieval."""
        async with self._call("Retrieve", context) as call:
            deadline_s = call.deadline_s()
            retrieval = await call.engine.retrieve(call.query(request), deadline_s=deadline_s)
            if retrieval.partial and _empty(retrieval):
                cut = ", ".join(retrieval.partial)
                raise DeadlinePassed(f"the deadline passed before anything was found (cut off: {cut}); allow more time")
            response = self._fitting(pb.RetrieveResponse(retrieval=call.message(retrieval, request)))
        return response

    async def RetrieveStream(  # noqa: N802
        self, request: pb.RetrieveStreamRequest, context: Context
    ) -> None:
        """Send each level as soon as it is ready."""
        async with (
            self._call("RetrieveStream", context) as call,
            _closing(call.engine.retrieve_stream(call.query(request), deadline_s=call.deadline_s())) as stream,
        ):
            async for level, retrieval in stream:
                message = call.message(retrieval, request)
                response = pb.RetrieveStreamResponse(level=level_to_proto(level), retrieval=message)
                await context.write(self._fitting(response))

    async def Answer(  # noqa: N802
        self, request: pb.AnswerRequest, context: Context
    ) -> None:
        """Send the retrieval, the text in pieces, and the answer."""
        async with (
            self._call("Answer", context) as call,
            _closing(call.engine.answer_stream(call.query(request), deadline_s=call.deadline_s())) as stream,
        ):
            sent: Retrieval | None = None
            async for part in stream:
                match part:
                    case Retrieval():
                        sent = part
                        response = pb.AnswerResponse(retrieval=call.message(part, request))
                    case Answer():
                        other = None if part.retrieval == sent else call.message(part.retrieval, request)
                        response = pb.AnswerResponse(answer=answer_to_proto(part, other))
                    case str():
                        response = pb.AnswerResponse(text=text_to_proto(part))
                await context.write(self._fitting(response))

    async def DescribeIndex(  # noqa: N802
        self, request: pb.DescribeIndexRequest, context: Context
    ) -> pb.DescribeIndexResponse:
        """Return what is being served."""
        async with self._call("DescribeIndex", context, counted=False) as call:
            response = pb.DescribeIndexResponse(info=info_to_proto(call.engine.info))
        return response

    @asynccontextmanager
    async def _call(self, method: str, context: Context, *, counted: bool = True) -> AsyncIterator[_Call]:
        """Admit a request, lend it an engine, turn what it raises into a status, and log it."""
        access = Access.of(method, context)
        context.set_trailing_metadata(((REQUEST_ID_KEY, access.request_id),))
        try:
            caller = self._gate.caller(context)
            access.caller = caller.name
            with self._admitted(counted), self._holder.lease() as engine:
                access.snapshot = engine.info.snapshot_id
                yield _Call(caller, engine, access, context)
        except asyncio.CancelledError:
            access.code = _cut_off(context)
            raise
        except Exception as error:
            if context.cancelled():  # a write to a caller that has gone
                access.code = _cut_off(context)
                raise asyncio.CancelledError from error
            told = _told(error, access.request_id)
            if isinstance(told, Refused):
                access.reason, access.caller = told.reason, told.caller or access.caller
            access.code = status_of(told).name
            trailers = trailers_of(told, access.request_id, context.time_remaining())
            await context.abort(status_of(told), message_of(told), trailers)
        finally:
            access.write()

    def _fitting(self, response: R) -> R:
        size = response.ByteSize()
        if size > self._max_message_bytes:
            raise TooLarge(
                f"the reply has {size} bytes, more than the {self._max_message_bytes} that a message may have; ask "
                f"with omit_context, omit_source_text or a smaller top_n, top_m or top_c"
            )
        return response

    @contextmanager
    def _admitted(self, counted: bool) -> Iterator[None]:
        if counted and self._at_work >= self._max_concurrent:
            raise Overloaded(
                f"the service is at work on {self._at_work} requests, as many as it takes; ask again in a moment"
            )
        self._at_work += counted
        try:
            yield
        finally:
            self._at_work -= counted


def _told(error: Exception, request_id: str) -> HiragError:
    """Return what the caller is told; the inside of an unforeseen error stays in the log."""
    if isinstance(error, HiragError):
        return error
    if isinstance(error, TimeoutError):
        return DeadlinePassed("the deadline passed before the request was done; allow more time")
    _LOG.error("request %s failed", request_id, exc_info=error)
    return HiragError(f"internal error; the service's log tells more under request id {request_id}")


def _cut_off(context: Context) -> str:
    remaining = context.time_remaining()
    return "CANCELLED" if remaining is None or remaining > 0 else "DEADLINE_EXCEEDED"


def _empty(retrieval: Retrieval) -> bool:
    return not (
        retrieval.local or retrieval.communities or retrieval.key_entities or retrieval.triples or retrieval.sources
    )


@asynccontextmanager
async def _closing(stream: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close the stream at the end: an abandoned request stops its work now, not when it is collected."""
    try:
        yield stream
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()
