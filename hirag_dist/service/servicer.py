"""The RPCs: messages in, the engine's work, messages out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.auth.authentication import Authenticator
from hirag_dist.service.auth.caller_registry import Caller
from hirag_dist.service.caller_quotas import SharedQuotas
from hirag_dist.service.engine import Engine
from hirag_dist.service.grpc_handlers import read_request
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.service.load_shedding import LoadShedder
from hirag_dist.types import MAP_REDUCE, Answer, Query, Retrieval
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_query import query_from_proto
from hirag_dist.wire.convert_results import (
    answer_to_proto,
    info_to_proto,
    level_to_proto,
    retrieval_to_proto,
    text_to_proto,
)
from hirag_dist.wire.error_status import (
    REQUEST_ID_KEY,
    AccessRefused,
    DeadlinePassed,
    RequestTooLarge,
    SlowReader,
    message_of,
    status_of,
    trailers_of,
)

_LOG = logging.getLogger(__name__)
MOST_CHARACTERS = 32_768  # of a question; embedding a longer one would keep the others waiting
_PAUSE_S = 0.1  # before a refusal
_MOST_PAUSING = 1000
_MARGIN_S = 0.05  # kept back from the deadline, so that a partial result still reaches the caller

T = TypeVar("T")
_Response = pb.RetrieveResponse | pb.RetrieveStreamResponse | pb.AnswerResponse


@dataclass(slots=True)
class _Call:
    """A request at work."""

    request: Any
    caller: Caller
    engine: Engine
    access: RequestRecord
    context: Context

    def query(self) -> Query:
        query = query_from_proto(self.request.query, self.engine.info.dim)
        self.access.mode, self.access.question = query.mode or "", query.question
        if len(query.question) > MOST_CHARACTERS:
            raise InvalidQuery(f"question must have at most {MOST_CHARACTERS} characters, got {len(query.question)}")
        return replace(query, reach=self.caller.reach)

    def deadline_s(self) -> float | None:
        """What the engine may take, in seconds, or None for any time."""
        remaining = self.context.time_remaining()
        return None if remaining is None else max(remaining - min(_MARGIN_S, remaining / 10), 0.0)

    def said(self) -> None:
        """Take down when the first piece of an answer came."""
        if self.access.first_text_s is None:
            self.access.first_text_s = self.access.elapsed_s

    def answered(self, answer: Answer) -> None:
        access = self.access
        access.model, access.input_tokens, access.output_tokens = (
            answer.model,
            answer.input_tokens,
            answer.output_tokens,
        )

    def fill(self, message: pb.Retrieval, retrieval: Retrieval) -> None:
        access, request = self.access, self.request
        access.mode, access.partial, access.timings_ms = retrieval.mode, retrieval.partial, retrieval.timings_ms
        levels = (retrieval.local, retrieval.communities, retrieval.key_entities, retrieval.triples, retrieval.sources)
        access.items = sum(map(len, levels))
        retrieval_to_proto(
            retrieval, omit_context=request.omit_context, omit_source_text=request.omit_source_text, into=message
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
        map_reduce: whether answers are given that cost a call to a model for each part of the corpus.
    """

    def __init__(
        self,
        holder: SnapshotSwapper,
        gate: Authenticator,
        admission: LoadShedder,
        limits: SharedQuotas | None,
        observers: Sequence[Callable[[RequestRecord], None]],
        *,
        max_message_bytes: int,
        send_timeout_s: float,
        map_reduce: bool = False,
    ) -> None:
        self._holder = holder
        self._gate = gate
        self._admission = admission
        self._limits = limits
        self._observers = observers
        self._max_message_bytes = max_message_bytes
        self._send_timeout_s = send_timeout_s
        self._map_reduce = map_reduce
        self._pausing = 0

    async def Retrieve(  # noqa: N802 - the names are the protocol's
        self, request: bytes, context: Context
    ) -> bytes:
        """Return the whole retrieval."""
        async with self._call("Retrieve", request, context) as call:
            query = call.query()

            async def work(deadline_s: float | None) -> bytes:
                retrieval = await call.engine.retrieve(query, deadline_s=deadline_s)
                if retrieval.partial and _empty(retrieval):
                    cut = ", ".join(retrieval.partial)
                    raise DeadlinePassed(
                        f"the deadline passed before anything was found (cut off: {cut}); allow more time"
                    )
                response = pb.RetrieveResponse()
                call.fill(response.retrieval, retrieval)
                return self._fitting(response)

            async with self._place(call):
                return await self._holder.runner.run(work(call.deadline_s()))

    async def RetrieveStream(  # noqa: N802
        self, request: bytes, context: Context
    ) -> None:
        """Send each level as soon as it is ready. A slow reader holds up nobody: what he has not read waits."""
        async with self._call("RetrieveStream", request, context) as call:
            query = call.query()
            ready: asyncio.Queue[bytes | None] = asyncio.Queue()

            async def work() -> AsyncGenerator[bytes, None]:
                async with _closing(call.engine.retrieve_stream(query, deadline_s=call.deadline_s())) as stream:
                    async for level, retrieval in stream:
                        response = pb.RetrieveStreamResponse(level=level_to_proto(level))
                        call.fill(response.retrieval, retrieval)
                        yield self._fitting(response)

            async def retrieve() -> None:
                try:
                    async with self._place(call), aclosing(self._holder.runner.stream(work)) as levels:
                        async for level in levels:
                            ready.put_nowait(level)
                finally:
                    ready.put_nowait(None)

            retrieving = asyncio.create_task(retrieve())  # keeps its place no longer than it works
            try:
                while (level := await ready.get()) is not None:
                    await self._send(context, level)
                await retrieving
            finally:
                retrieving.cancel()
                await asyncio.gather(retrieving, return_exceptions=True)

    async def Answer(  # noqa: N802
        self, request: bytes, context: Context
    ) -> None:
        """Send the retrieval, the text in pieces, and the answer. Only the retrieval needs a place in the line."""
        async with self._call("Answer", request, context, answer=True) as call, AsyncExitStack() as held:
            query = call.query()
            if query.mode in MAP_REDUCE and not self._map_reduce:
                raise InvalidQuery(
                    f"mode: {query.mode} costs a call for each part of the corpus, and this service does not allow it "
                    f"(service.map_reduce); choose another mode"
                )
            await held.enter_async_context(self._place(call))
            deadline_s = call.deadline_s()

            async def work() -> AsyncGenerator[bytes, None]:
                sent: Retrieval | None = None
                async with _closing(call.engine.answer_stream(query, deadline_s=deadline_s)) as stream:
                    async for part in stream:
                        match part:
                            case Retrieval():
                                sent = part
                                response = pb.AnswerResponse()
                                call.fill(response.retrieval, part)
                            case Answer():
                                call.answered(part)
                                response = pb.AnswerResponse(answer=answer_to_proto(part))
                                if part.retrieval != sent:
                                    call.fill(response.answer.retrieval, part.retrieval)
                            case str():
                                call.said()
                                response = pb.AnswerResponse(text=text_to_proto(part))
                        yield self._fitting(response)

            async with aclosing(self._holder.runner.stream(work)) as parts:
                async for part in parts:
                    await held.aclose()  # the first part is what was, or will be, read; models need no place
                    await self._send(context, part)

    async def DescribeIndex(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return what is being served."""
        async with self._call("DescribeIndex", request, context, retrieves=False) as call:

            async def work() -> bytes:
                info = call.engine.describe(call.caller.reach)
                response: bytes = pb.DescribeIndexResponse(info=info_to_proto(info)).SerializeToString()
                return response

            return await self._holder.runner.run(work())

    @asynccontextmanager
    async def _call(
        self, method: str, request: bytes, context: Context, *, retrieves: bool = True, answer: bool = False
    ) -> AsyncIterator[_Call]:
        """Let a request in, lend it an engine, turn what it raises into a status, and tell the observers."""
        access = RequestRecord.of(method, context)
        context.set_trailing_metadata(((REQUEST_ID_KEY, access.request_id),))
        try:
            caller, access.kind = self._gate.caller(context)
            access.caller, access.labels = caller.name, "all" if caller.reach is None else len(caller.reach)
            if retrieves:  # before the caller's limits: who cannot be served is not charged for it
                self._admission.check(context.time_remaining())
            message = read_request(method, request)
            with (
                self._admission.counted(answer=answer) if retrieves else nullcontext(),
                self._holder.lease() as engine,
                nullcontext() if self._limits is None else self._limits.admitted(caller),
            ):
                access.snapshot = engine.info.snapshot_id
                yield _Call(message, caller, engine, access, context)
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
            if isinstance(told, AccessRefused):
                access.reason, access.caller = told.reason, told.caller or access.caller
            access.code = status_of(told).name
            self._ended(access)
            if isinstance(told, AccessRefused):
                await self._pause(context)
            trailers = trailers_of(told, access.request_id, context.time_remaining())
            # Behind what a slow reader has not read yet this may take as long as his connection lives; nothing is held.
            await context.abort(status_of(told), message_of(told), trailers)
        else:
            self._ended(access)

    def _ended(self, access: RequestRecord) -> None:
        access.seconds = access.elapsed_s
        for observer in self._observers:
            observer(access)

    @asynccontextmanager
    async def _place(self, call: _Call) -> AsyncIterator[None]:
        async with self._admission.slot(call.context.time_remaining) as call.access.queued_s:
            yield

    async def _pause(self, context: Context) -> None:
        """Let a refusal wait a little: who asks again at once, and at once again, would take the time of all others."""
        left_s = context.time_remaining()
        if self._pausing < _MOST_PAUSING:
            self._pausing += 1
            try:
                await asyncio.sleep(_PAUSE_S if left_s is None else min(_PAUSE_S, left_s / 2))
            finally:
                self._pausing -= 1

    async def _send(self, context: Context, message: bytes) -> None:
        """Write to a stream, as far as the caller reads it."""
        try:
            async with asyncio.timeout(self._send_timeout_s):
                await context.write(message)
        except TimeoutError:
            raise SlowReader(
                f"nothing of the reply was read for {self._send_timeout_s:g} s, so the rest is dropped", "slow_reader"
            ) from None

    def _fitting(self, response: _Response) -> bytes:
        """Return a reply as it goes over the wire."""
        message: bytes = response.SerializeToString()
        if len(message) > self._max_message_bytes:
            raise RequestTooLarge(
                f"the reply has {len(message)} bytes, more than the {self._max_message_bytes} that a message may have; "
                f"ask with omit_context, omit_source_text or a smaller top_n, top_m or top_c"
            )
        return message


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
