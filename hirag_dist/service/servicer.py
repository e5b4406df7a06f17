"""The RPCs: messages in, the engine's work, messages out."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import TypeVar

from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.service._pb import query_pb2 as pb
from hirag_dist.service.access import Access, Context
from hirag_dist.service.admission import Admission
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
from hirag_dist.service.handlers import Malformed
from hirag_dist.service.holder import EngineHolder
from hirag_dist.service.limits import SharedLimits
from hirag_dist.service.status import (
    REQUEST_ID_KEY,
    DeadlinePassed,
    Refused,
    SlowReader,
    TooLarge,
    message_of,
    status_of,
    trailers_of,
)
from hirag_dist.types import Answer, Query, Retrieval

_LOG = logging.getLogger(__name__)
MOST_CHARACTERS = 32_768  # of a question; embedding a longer one would keep the others waiting
_MARGIN_S = 0.05  # kept back from the deadline, so that a partial result still reaches the caller

T = TypeVar("T")
R = TypeVar("R", pb.RetrieveResponse, pb.RetrieveStreamResponse, pb.AnswerResponse)
_Request = pb.RetrieveRequest | pb.RetrieveStreamRequest | pb.AnswerRequest
_Response = pb.RetrieveStreamResponse | pb.AnswerResponse


@dataclass(slots=True)
class _Call:
    """A request at work."""

    caller: Caller
    engine: Engine
    access: Access
    context: Context

    def query(self, request: _Request) -> Query:
        query = query_from_proto(request.query)
        self.access.mode, self.access.question = query.mode or "", query.question
        if len(query.question) > MOST_CHARACTERS:
            raise InvalidQuery(f"question must have at most {MOST_CHARACTERS} characters, got {len(query.question)}")
        return replace(query, reach=self.caller.reach)

    def deadline_s(self) -> float | None:
        """What the engine may take, in seconds, or None for any time."""
        remaining = self.context.time_remaining()
        return None if remaining is None else max(remaining - min(_MARGIN_S, remaining / 10), 0.0)

    def message(self, retrieval: Retrieval, request: _Request) -> pb.Retrieval:
        access = self.access
        access.mode, access.partial, access.timings_ms = retrieval.mode, retrieval.partial, retrieval.timings_ms
        levels = (retrieval.local, retrieval.communities, retrieval.key_entities, retrieval.triples, retrieval.sources)
        access.items = sum(map(len, levels))
        return retrieval_to_proto(
            retrieval, omit_context=request.omit_context, omit_source_text=request.omit_source_text
        )


class QueryServicer:
    """Answers `hirag.query.v1.QueryService` from the holder's engine.

    Args:
        holder: gives the engine of the current snapshot.
        gate: says who calls.
        admission: says whose turn it is.
        limits: what callers may ask; None where nobody is known.
        observers: told of each request when it has ended.
        max_message_bytes: of a reply.
        send_timeout_s: how long a caller may leave a piece of a stream unread.
    """

    def __init__(
        self,
        holder: EngineHolder,
        gate: Gate,
        admission: Admission,
        limits: SharedLimits | None,
        observers: Sequence[Callable[[Access], None]],
        *,
        max_message_bytes: int,
        send_timeout_s: float,
    ) -> None:
        self._holder = holder
        self._gate = gate
        self._admission = admission
        self._limits = limits
        self._observers = tuple(observers)
        self._max_message_bytes = max_message_bytes
        self._send_timeout_s = send_timeout_s

    async def Retrieve(  # noqa: N802 - the names are the protocol's
        self, request: pb.RetrieveRequest, context: Context
    ) -> pb.RetrieveResponse:
        """Return the whole retrieval."""
        async with self._call("Retrieve", request, context) as call:
            query = call.query(request)
            async with self._place(call):
                retrieval = await call.engine.retrieve(query, deadline_s=call.deadline_s())
                if retrieval.partial and _empty(retrieval):
                    cut = ", ".join(retrieval.partial)
                    raise DeadlinePassed(
                        f"the deadline passed before anything was found (cut off: {cut}); allow more time"
                    )
                return self._fitting(pb.RetrieveResponse(retrieval=call.message(retrieval, request)))

    async def RetrieveStream(  # noqa: N802
        self, request: pb.RetrieveStreamRequest, context: Context
    ) -> None:
        """Send each level as soon as it is ready. A slow reader holds up nobody: what he has not read waits."""
        async with self._call("RetrieveStream", request, context) as call:
            query = call.query(request)
            ready: asyncio.Queue[pb.RetrieveStreamResponse | None] = asyncio.Queue()  # a message for each level

            async def work() -> None:
                try:
                    async with (
                        self._place(call),
                        _closing(call.engine.retrieve_stream(query, deadline_s=call.deadline_s())) as stream,
                    ):
                        async for level, retrieval in stream:
                            message = call.message(retrieval, request)
                            response = pb.RetrieveStreamResponse(level=level_to_proto(level), retrieval=message)
                            ready.put_nowait(self._fitting(response))
                finally:
                    ready.put_nowait(None)

            working = asyncio.create_task(work())
            try:
                while (response := await ready.get()) is not None:
                    await self._send(context, response)
                await working
            finally:
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    async def Answer(  # noqa: N802
        self, request: pb.AnswerRequest, context: Context
    ) -> None:
        """Send the retrieval, the text in pieces, and the answer. Only the retrieval needs a place in the line."""
        async with self._call("Answer", request, context, answer=True) as call, contextlib.AsyncExitStack() as held:
            query = call.query(request)
            sent: Retrieval | None = None
            await held.enter_async_context(self._place(call))
            stream = call.engine.answer_stream(query, deadline_s=call.deadline_s())
            async with _closing(stream):
                async for part in stream:
                    match part:
                        case Retrieval():
                            sent = part
                            response = pb.AnswerResponse(retrieval=call.message(part, request))
                            await held.aclose()
                        case Answer():
                            call.access.model = part.model
                            call.access.input_tokens, call.access.output_tokens = part.input_tokens, part.output_tokens
                            other = None if part.retrieval == sent else call.message(part.retrieval, request)
                            response = pb.AnswerResponse(answer=answer_to_proto(part, other))
                        case str():
                            if call.access.first_text_s is None:
                                call.access.first_text_s = call.access.elapsed_s
                            response = pb.AnswerResponse(text=text_to_proto(part))
                    await self._send(context, self._fitting(response))

    async def DescribeIndex(  # noqa: N802
        self, request: pb.DescribeIndexRequest, context: Context
    ) -> pb.DescribeIndexResponse:
        """Return what is being served."""
        async with self._call("DescribeIndex", request, context, retrieves=False) as call:
            return pb.DescribeIndexResponse(info=info_to_proto(call.engine.info))

    @asynccontextmanager
    async def _call(
        self, method: str, request: object, context: Context, *, retrieves: bool = True, answer: bool = False
    ) -> AsyncIterator[_Call]:
        """Let a request in, lend it an engine, turn what it raises into a status, and tell the observers."""
        access = Access.of(method, context)
        context.set_trailing_metadata(((REQUEST_ID_KEY, access.request_id),))
        try:
            caller, access.kind = self._gate.caller(context)
            access.caller, access.labels = caller.name, "all" if caller.reach is None else len(caller.reach)
            if isinstance(request, Malformed):
                raise InvalidQuery(f"the bytes are no {method}Request; make one with code generated from query.proto")
            if retrieves:  # before the caller's limits, so that who is shed is not charged for it
                self._admission.check(context.time_remaining())
            with (
                self._admission.counted(answer=answer) if retrieves else contextlib.nullcontext(),
                contextlib.nullcontext() if self._limits is None else self._limits.admitted(caller),
                self._holder.lease() as engine,
            ):
                access.snapshot = engine.info.snapshot_id
                yield _Call(caller, engine, access, context)
        except asyncio.CancelledError:
            access.code = _cut_off(context)
            self._ended(access)
            raise
        except Exception as error:
            if context.cancelled():  # a write to a caller that has gone
                access.code = _cut_off(context)
                self._ended(access)
                raise asyncio.CancelledError from error
            told = _told(error, access.request_id)
            if isinstance(told, Refused):
                access.reason, access.caller = told.reason, told.caller or access.caller
            access.code = status_of(told).name
            self._ended(access)
            trailers = trailers_of(told, access.request_id, context.time_remaining())
            # Behind what a slow reader has not read yet this may take as long as his connection lives; nothing is held.
            await context.abort(status_of(told), message_of(told), trailers)
        else:
            self._ended(access)

    def _ended(self, access: Access) -> None:
        access.seconds = access.elapsed_s
        for observer in self._observers:
            observer(access)

    @asynccontextmanager
    async def _place(self, call: _Call) -> AsyncIterator[None]:
        async with self._admission.place(call.context.time_remaining) as call.access.queued_s:
            yield

    async def _send(self, context: Context, response: _Response) -> None:
        """Write to a stream, as far as the caller reads it."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await context.write(response)
        except TimeoutError:
            raise SlowReader(
                f"nothing of the reply was read for {self._send_timeout_s:g} s, so the rest is dropped", "slow_reader"
            ) from None

    def _fitting(self, response: R) -> R:
        size = response.ByteSize()
        if size > self._max_message_bytes:
            raise TooLarge(
                f"the reply has {size} bytes, more than the {self._max_message_bytes} that a message may have; ask "
                f"with omit_context, omit_source_text or a smaller top_n, top_m or top_c"
            )
        return response


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
