"""The RPCs of `hirag.query.v1.QueryService`: authentication, quotas, load shedding, the engine's work, the reply."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from hirag_dist.errors import InvalidQuery
from hirag_dist.service.access_log import Context, RequestRecord
from hirag_dist.service.callers import Caller
from hirag_dist.service.catalogue import IndexSource
from hirag_dist.service.hot_swap import index_page
from hirag_dist.service.options import ServerOptions
from hirag_dist.service.request_gate import LoadShedder, RequestGate
from hirag_dist.types import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    MAP_REDUCE,
    Answer,
    Query,
    Retrieval,
)
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert import (
    LEVELS,
    MAX_QUESTION_CHARACTERS,
    answer_to_proto,
    key_from_proto,
    query_from_proto,
    retrieval_fields,
    scope_from_proto,
)
from hirag_dist.wire.error_status import OR_DEFAULT_KEY, DeadlinePassed, IndexNotFound, RequestTooLarge, SlowReader
from hirag_dist.wire.records import MODES, message_fields, message_of

if TYPE_CHECKING:
    from hirag_dist.retrieval.engine import QueryEngine


def _n_found(*groups: Sequence[Any]) -> int:
    return sum(map(len, groups))


def _n_items(retrieval: Retrieval) -> int:
    return _n_found(
        retrieval.local, retrieval.communities, retrieval.key_entities, retrieval.triples, retrieval.sources
    )


@dataclass(frozen=True, slots=True)
class _Lookup:
    """An RPC that looks up a single item.

    Attributes:
        find: Calls the engine; takes it, the request, the keys, and `scope` and `deadline_s` as keyword arguments.
        count: Returns the number of entities, communities, relations and chunks that were found.
    """

    response: type[Any]
    keys: tuple[str, ...]
    find: Callable[..., Awaitable[Any]]
    count: Callable[[Any], int]


_LOOKUPS: Mapping[str, _Lookup] = {
    "GetEntity": _Lookup(
        pb.GetEntityResponse,
        ("entity",),
        lambda engine, request, entity, **options: engine.get_entity(
            entity,
            max_relations=request.max_relations or DEFAULT_RELATIONS,
            max_sources=request.max_sources or DEFAULT_SOURCES,
            **options,
        ),
        lambda found: (
            1
            + _n_found(found.relations, found.neighbours, found.ancestors)
            + _n_found(found.members, found.communities, found.sources)
        ),
    ),
    "FindPath": _Lookup(
        pb.FindPathResponse,
        ("source", "target"),
        lambda engine, request, source, target, **options: engine.find_path(source, target, **options),
        lambda found: _n_found(found.entities, found.triples),
    ),
    "GetCommunity": _Lookup(
        pb.GetCommunityResponse,
        ("community_id",),
        lambda engine, request, community, **options: engine.get_community(
            community, max_members=request.max_members or DEFAULT_MEMBERS, **options
        ),
        lambda found: 1 + _n_found(found.members, found.children) + (found.parent is not None),
    ),
    "GetDocument": _Lookup(
        pb.GetDocumentResponse,
        ("document_id",),
        lambda engine, request, document, **options: engine.get_document(
            document, start=request.start, max_chars=request.max_chars or DEFAULT_CHARS, **options
        ),
        lambda found: len(found.chunks),
    ),
}


def _lookup_method(method: str) -> Callable[[QueryServicer, bytes, Context], Awaitable[bytes]]:
    """Return the handler of a look-up."""

    async def look_up(self: QueryServicer, request: bytes, context: Context) -> bytes:
        return await self.look_up(method, request, context)

    return look_up


logger = logging.getLogger(__name__)
_DEADLINE_MARGIN_S = 0.05  # subtracted from the deadline, so that a partial result reaches the caller in time
_SMALLER = "omit_context, omit_source_text or a smaller top_n, top_m or top_c"  # options of a request


@dataclass(slots=True)
class _Call:
    """A request in progress."""

    request: Any
    caller: Caller
    engine: QueryEngine
    record: RequestRecord
    context: Context
    max_context_tokens: int

    def query(self) -> Query:
        """Return the query of the request, limited to what the caller may see."""
        query = query_from_proto(self.request.query, self.engine.info.dim)
        self.record.mode, self.record.question = query.mode or "", query.question
        if len(query.question) > MAX_QUESTION_CHARACTERS:
            raise InvalidQuery(
                f"question must have at most {MAX_QUESTION_CHARACTERS} characters, got {len(query.question)}"
            )
        if query.context_tokens is not None and query.context_tokens > self.max_context_tokens:
            raise InvalidQuery(
                f"context_tokens must be at most {self.max_context_tokens} (service.max_context_tokens), got "
                f"{query.context_tokens}"
            )
        return replace(query, reach=self.caller.reach)

    def deadline_s(self) -> float | None:
        """Return the seconds that the engine may take; None without a deadline."""
        remaining = self.context.time_remaining()
        return None if remaining is None else max(remaining - min(_DEADLINE_MARGIN_S, remaining / 10), 0.0)

    def fields(self, retrieval: Retrieval) -> dict[str, Any]:
        """Return the fields of a retrieval's message in a reply, and record its content."""
        record, request = self.record, self.request
        record.mode, record.partial, record.timings_ms = retrieval.mode, retrieval.partial, retrieval.timings_ms
        record.items = _n_items(retrieval)
        return retrieval_fields(retrieval, omit_context=request.omit_context, omit_source_text=request.omit_source_text)


class QueryServicer:
    """Servicer of `hirag.query.v1.QueryService`.

    Args:
        indexes: those that requests may name, with their engines.
        shedder: has the retrieval slots.
    """

    def __init__(self, indexes: IndexSource, gate: RequestGate, shedder: LoadShedder, options: ServerOptions) -> None:
        self._indexes = indexes
        self._gate = gate
        self._shedder = shedder
        self._options = options

    async def Retrieve(  # noqa: N802 - the names are the protocol's
        self, request: bytes, context: Context
    ) -> bytes:
        """Return the retrieval."""
        async with self._call("Retrieve", request, context) as call:
            query = call.query()

            async def work(deadline_s: float | None) -> bytes:
                found = await call.engine.retrieve(query, deadline_s=deadline_s)
                _check_found(found)
                return self._serialized(message_of(pb.RetrieveResponse, retrieval=call.fields(found)))

            async with self._slot(call):
                return await self._indexes.runner.run(work(call.deadline_s()))

    async def RetrieveStream(  # noqa: N802
        self, request: bytes, context: Context
    ) -> None:
        """Send each level as soon as it is ready.

        Levels that a slow client has not read wait in a queue, so that the client holds its slot no longer than others.
        """
        async with self._call("RetrieveStream", request, context) as call:
            query = call.query()
            ready: asyncio.Queue[bytes | None] = asyncio.Queue()

            async def work() -> AsyncGenerator[bytes, None]:
                async with aclosing(call.engine.retrieve_stream(query, deadline_s=call.deadline_s())) as stream:
                    async for level, retrieval in stream:
                        _check_found(retrieval)
                        found = call.fields(retrieval)
                        yield self._serialized(
                            message_of(pb.RetrieveStreamResponse, level=LEVELS[level], retrieval=found)
                        )

            async def retrieve() -> None:
                try:
                    async with self._slot(call), aclosing(self._indexes.runner.stream(work)) as levels:
                        async for level in levels:
                            ready.put_nowait(level)
                finally:
                    ready.put_nowait(None)

            retrieving = asyncio.create_task(
                retrieve()
            )  # holds the slot until the retrieval ends, however slowly the client reads
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
        """Send the retrieval, the text in pieces, and the answer. Only the retrieval holds a slot."""
        async with self._call("Answer", request, context, answer=True) as call, AsyncExitStack() as slot:
            query = call.query()
            if query.mode in MAP_REDUCE and not self._options.map_reduce:
                raise InvalidQuery(
                    f"mode: {query.mode} costs a call for each part of the corpus, and this service does not allow it "
                    f"(service.map_reduce); choose another mode"
                )
            await slot.enter_async_context(self._slot(call))
            deadline_s = call.deadline_s()

            async def work() -> AsyncGenerator[bytes, None]:
                sent: Retrieval | None = None
                record = call.record
                async with aclosing(call.engine.answer_stream(query, deadline_s=deadline_s)) as stream:
                    async for part in stream:
                        match part:
                            case Retrieval():
                                sent = part
                                response = message_of(pb.AnswerResponse, retrieval=call.fields(part))
                            case Answer():
                                record.model = part.model
                                record.input_tokens, record.output_tokens = part.input_tokens, part.output_tokens
                                own = None if part.retrieval == sent else call.fields(part.retrieval)
                                response = pb.AnswerResponse(answer=answer_to_proto(part, own))
                            case str():
                                if record.first_text_s is None:
                                    record.first_text_s = record.elapsed_s
                                response = message_of(pb.AnswerResponse, text=part)
                        yield self._serialized(response)

            async with aclosing(self._indexes.runner.stream(work)) as parts:
                async for part in parts:
                    await slot.aclose()  # the first part is the retrieval: a model's answer needs no slot
                    await self._send(context, part)

    async def DescribeIndex(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return the description of the current snapshot, as the caller may see it."""
        async with self._call("DescribeIndex", request, context, retrieves=False) as call:

            async def work() -> bytes:
                info = call.engine.describe(call.caller.reach, call.request.filter, call.request.as_of)
                response = message_of(
                    pb.DescribeIndexResponse,
                    info=message_fields(info, pb.IndexInfo),
                    modes=[
                        number for mode, number in MODES.items() if self._options.map_reduce or mode not in MAP_REDUCE
                    ],
                )
                return bytes(response.SerializeToString())

            return await self._indexes.runner.run(work())

    GetEntity, FindPath, GetCommunity, GetDocument = map(_lookup_method, _LOOKUPS)

    async def look_up(self, method: str, request: bytes, context: Context) -> bytes:
        """Return the reply of a look-up. Raises InvalidQuery where the id or name is blank or too long."""
        lookup = _LOOKUPS[method]
        async with self._call(method, request, context) as call:
            keys = [key_from_proto(call.request, name) for name in lookup.keys]
            scope = scope_from_proto(call.request, call.caller.reach)

            async def work() -> bytes:
                found = await lookup.find(call.engine, call.request, *keys, scope=scope, deadline_s=call.deadline_s())
                call.record.items = lookup.count(found)
                reply = message_of(lookup.response, **message_fields(found, lookup.response))
                return self._serialized(reply, "a smaller max_relations, max_sources, max_members or max_chars")

            async with self._slot(call):
                return await self._indexes.runner.run(work())

    async def ListIndexes(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return a page of the indexes that the caller may ask."""
        async with self._gate.admitted("ListIndexes", request, context, retrieves=False) as (message, caller, _):
            page = index_page(self._indexes.entries(caller), message)
            return bytes(page.SerializeToString())

    @asynccontextmanager
    async def _call(
        self, method: str, request: bytes, context: Context, *, retrieves: bool = True, answer: bool = False
    ) -> AsyncIterator[_Call]:
        """Admit a request and lease it an engine of its index, for as long as the block lasts."""
        admitted = self._gate.admitted(method, request, context, retrieves=retrieves, answer=answer)
        async with admitted as (message, caller, record):
            index = self._index(message.index, caller, context)
            record.index = index.name
            async with index.lease(context.time_remaining) as engine:
                record.snapshot = engine.info.snapshot_id
                yield _Call(message, caller, engine, record, context, self._options.max_context_tokens)

    def _index(self, name: str, caller: Caller, context: Context) -> Any:
        """Return the index of a name; for one that no index has, the default index if the metadata allow it."""
        try:
            return self._indexes.find(name, caller)
        except IndexNotFound:
            if not any(key == OR_DEFAULT_KEY for key, _ in context.invocation_metadata() or ()):
                raise
            return self._indexes.find("", caller)

    @asynccontextmanager
    async def _slot(self, call: _Call) -> AsyncIterator[None]:
        """Hold a retrieval slot for as long as the block lasts; record the wait for it."""
        async with self._shedder.slot(call.context.time_remaining) as call.record.queued_s:
            yield

    async def _send(self, context: Context, message: bytes) -> None:
        """Write to a stream; raise SlowReader if the client does not read."""
        try:
            async with asyncio.timeout(self._options.send_timeout_s):
                await context.write(message)
        except TimeoutError:
            raise SlowReader(
                f"nothing of the reply was read for {self._options.send_timeout_s:g} s, so the rest is dropped",
                "slow_reader",
            ) from None

    def _serialized(self, response: Message, smaller: str = _SMALLER) -> bytes:
        """Return the bytes of a reply, if they fit into a message.

        Args:
            smaller: the options of a request with a smaller reply.
        """
        message: bytes = response.SerializeToString()
        limit = self._options.max_message_bytes
        if len(message) > limit:
            raise RequestTooLarge(
                f"the reply has {len(message)} bytes, more than the {limit} that a message may have; ask with {smaller}"
            )
        return message


def _check_found(retrieval: Retrieval) -> None:
    """Raise DeadlinePassed if the deadline left nothing of a retrieval."""
    if retrieval.partial and not _n_items(retrieval):
        cut = ", ".join(retrieval.partial)
        raise DeadlinePassed(f"the deadline passed before anything was found (cut off: {cut}); allow more time")
