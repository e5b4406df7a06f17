"""The clients: the asynchronous one, and the synchronous one, which is that in a thread with an event loop."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any, Self, TypeVar, Unpack

import grpc

from hirag_dist._loop_thread import LoopThread, Synchronous, call, stream
from hirag_dist.client.common import (
    HOW_TO_START,
    LIST_PAGE_SIZE,
    SERVICE_NAME,
    CallArguments,
    CallOptions,
    LookupOptions,
    QuestionOptions,
    client_options,
    closed_early,
    explain,
    make_channel,
    service_stub,
)
from hirag_dist.errors import ServiceError
from hirag_dist.types import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    Answer,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    IndexEntry,
    IndexInfo,
    PathDetails,
    Query,
    Retrieval,
)
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.addresses import DEFAULT_LISTEN
from hirag_dist.wire.convert import answer_from_proto, level_from_proto
from hirag_dist.wire.error_status import HEALTH_WATCH, SERVING, HealthCheckRequest, HealthCheckResponse
from hirag_dist.wire.records import record_of

T = TypeVar("T")


class AsyncHiragClient:
    """Client of a running service in one event loop; usable as an asynchronous context manager.

    Every call takes the keyword arguments of `CallOptions`. It raises the error that the service raised
    (`InvalidQuery`, `ModelUnavailable`, `Unauthenticated`, …), or `ServiceError` if no service is reachable or the
    connection is lost. A call that did not begin is retried (`ClientOptions.retries`); a reply that was interrupted is
    not, since an answer would be paid for twice.

    Args:
        target: HOST:PORT, http://HOST:PORT, or https://HOST:PORT with TLS.
        options: fields of `ClientOptions`: token or token_file, root_certificates, certificate, key, timeout_s, …

    Raises:
        ConfigError: the options contradict each other, or a file cannot be read.
        TypeError: an option is unknown.
        RuntimeError: from a call, when the client is closed.
    """

    def __init__(self, target: str = DEFAULT_LISTEN, **options: Any) -> None:
        self._options = client_options(target, options)
        self._arguments = CallArguments(self._options)
        self._channel = make_channel(self._options, self._options.credentials())
        self._stub = service_stub(self._channel)
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. Calls in progress end with ServiceError."""
        self._closed = True
        await self._channel.close()

    async def retrieve(self, query: Query | str, **options: Unpack[QuestionOptions]) -> Retrieval:
        """Return the entities, reports, paths and sources that the index has for a question."""
        request, arguments = self._arguments.of_question(pb.RetrieveRequest, query, options)
        with self._explained():
            response = await self._stub.Retrieve(request, **arguments)
        return record_of(Retrieval, response.retrieval)

    async def retrieve_stream(
        self, query: Query | str, **options: Unpack[QuestionOptions]
    ) -> AsyncGenerator[tuple[str, Retrieval], None]:
        """Yield ("local", the result so far), then global, bridge, sources, and ("done", the whole result)."""
        request, arguments = self._arguments.of_question(pb.RetrieveStreamRequest, query, options)
        async with aclosing(self._messages(self._stub.RetrieveStream, request, arguments)) as messages:
            async for message in messages:
                yield level_from_proto(message.level), record_of(Retrieval, message.retrieval)

    async def answer(self, query: Query | str, **options: Unpack[QuestionOptions]) -> Answer:
        """Return the answer to a question, with citations and the retrieval behind it."""
        answer: Answer | None = None
        async with aclosing(self.answer_stream(query, **options)) as parts:
            async for part in parts:
                if isinstance(part, Answer):
                    answer = part
        assert answer is not None  # a stream without one raises
        return answer

    async def answer_stream(
        self, query: Query | str, **options: Unpack[QuestionOptions]
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield the retrieval, the text in pieces, and the answer. Closing the iterator cancels the call.

        In a map-reduce mode there are two retrievals: the counts before the calls are made, and the result.
        """
        retrieval: Retrieval | None = None
        answer: Answer | None = None
        request, arguments = self._arguments.of_question(pb.AnswerRequest, query, options)
        async with aclosing(self._messages(self._stub.Answer, request, arguments)) as messages:
            async for message in messages:
                match message.WhichOneof("part"):  # a later service may send parts of other kinds
                    case "retrieval":
                        retrieval = record_of(Retrieval, message.retrieval)
                        yield retrieval
                    case "text":
                        yield message.text
                    case "answer":
                        if retrieval is None:
                            if not message.answer.HasField("retrieval"):
                                raise ServiceError(f"{self._options.target} sent an answer without its retrieval")
                            retrieval = record_of(Retrieval, message.answer.retrieval)
                        answer = answer_from_proto(message.answer, retrieval)
                        yield answer
        if answer is None:
            raise ServiceError(f"{self._options.target} ended its stream without an answer")

    async def describe(
        self,
        *,
        filter: str = "",  # noqa: A002 - as of `Query`
        as_of: str = "",
        **options: Unpack[CallOptions],
    ) -> IndexInfo:
        """Return the description of the snapshot that the service serves.

        Args:
            filter, as_of: as of `Query`: counts and facets are those of the documents that meet them.
            options: of the call.

        Raises:
            InvalidQuery: the index has no such field, or the filter is no expression.
        """
        request = pb.DescribeIndexRequest(index=self._arguments.index(options), filter=filter, as_of=as_of)
        with self._explained():
            response = await self._stub.DescribeIndex(request, **self._arguments.of(options))
        return record_of(IndexInfo, response.info)

    async def list_indexes(self, **options: Unpack[CallOptions]) -> list[IndexEntry]:
        """Return the indexes of the service that the caller may ask, ordered by name."""
        found: list[IndexEntry] = []
        request = pb.ListIndexesRequest(page_size=LIST_PAGE_SIZE)
        while True:
            with self._explained():
                response = await self._stub.ListIndexes(request, **self._arguments.of(options))
            found += (record_of(IndexEntry, entry) for entry in response.indexes)
            if not response.next_page_token:
                return found
            request.page_token = response.next_page_token

    async def get_entity(
        self,
        entity: str,
        *,
        max_relations: int = DEFAULT_RELATIONS,
        max_sources: int = DEFAULT_SOURCES,
        **options: Unpack[LookupOptions],
    ) -> EntityDetails:
        """Return an entity, by id or name, with its relations, its place in the hierarchy and its sources.

        Raises:
            NotFound: there is no such entity, or the caller may not see it.
        """
        fields = {"entity": entity, "max_relations": max_relations, "max_sources": max_sources}
        return await self._looked_up(EntityDetails, self._stub.GetEntity, pb.GetEntityRequest, options, fields)

    async def find_path(self, source: str, target: str, **options: Unpack[LookupOptions]) -> PathDetails:
        """Return a shortest path between two entities, by id or name (Eq. 15-16).

        Raises:
            NotFound: there is no such entity, or the caller may not see it.
        """
        fields = {"source": source, "target": target}
        return await self._looked_up(PathDetails, self._stub.FindPath, pb.FindPathRequest, options, fields)

    async def get_community(
        self,
        community_id: str,
        *,
        max_members: int = DEFAULT_MEMBERS,
        **options: Unpack[LookupOptions],
    ) -> CommunityDetails:
        """Return a community with its report, its members, its parent and its children.

        Raises:
            NotFound: there is no such community, or the caller may not see it.
        """
        fields = {"community_id": community_id, "max_members": max_members}
        return await self._looked_up(CommunityDetails, self._stub.GetCommunity, pb.GetCommunityRequest, options, fields)

    async def get_document(
        self,
        document_id: str,
        *,
        start: int = 0,
        max_chars: int = DEFAULT_CHARS,
        **options: Unpack[LookupOptions],
    ) -> DocumentPart:
        """Return a part of a document's text, by the id of the document or of a chunk of it.

        Raises:
            NotFound: there is no such document, or the caller may not see it.
        """
        fields = {"document_id": document_id, "start": start, "max_chars": max_chars}
        return await self._looked_up(DocumentPart, self._stub.GetDocument, pb.GetDocumentRequest, options, fields)

    async def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return once the service has a snapshot loaded.

        Raises:
            ServiceError: it has none within `timeout_s` seconds.
        """
        self._check_open()
        health: Any = self._channel.unary_stream(
            HEALTH_WATCH,
            request_serializer=HealthCheckRequest.SerializeToString,
            response_deserializer=HealthCheckResponse.FromString,
        )
        until, answered = time.monotonic() + timeout_s, False
        while (left := until - time.monotonic()) > 0:
            watch = health(HealthCheckRequest(service=SERVICE_NAME), timeout=left, wait_for_ready=True)
            try:
                async for reply in watch:
                    answered = True
                    if reply.status == SERVING:
                        return
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise explain(error, self._options.target) from error
            finally:
                watch.cancel()
        target = self._options.target
        if answered:
            raise ServiceError(f"the service at {target} had no snapshot loaded within {timeout_s:g} s; see its log")
        raise ServiceError(f"no service answers at {target} within {timeout_s:g} s; {HOW_TO_START}")

    async def _looked_up(
        self, kind: type[T], method: Any, request: Any, options: LookupOptions, fields: dict[str, Any]
    ) -> T:
        message, arguments = self._arguments.of_lookup(request, options, **fields)
        with self._explained():
            return record_of(kind, await method(message, **arguments))

    async def _messages(self, method: Any, request: Any, arguments: dict[str, Any]) -> AsyncGenerator[Any, None]:
        begun = False
        with self._explained(lambda: begun):
            call = method(request, **arguments)
            try:
                async for message in call:
                    begun = True
                    yield message
            finally:
                call.cancel()

    @contextmanager
    def _explained(self, begun: Callable[[], bool] = lambda: False) -> Iterator[None]:
        self._check_open()
        try:
            yield
        except grpc.RpcError as error:
            raise explain(error, self._options.target, begun=begun(), closed=self._closed) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if self._closed and task is not None and not task.cancelling():  # raised by gRPC: no task was cancelled
                raise closed_early() from error
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this client is closed; make another")


class HiragClient(Synchronous):
    """Client of a running service; usable from several threads, and as a context manager.

    Calls, options and errors are those of `AsyncHiragClient`; at `close` calls in progress end with ServiceError.

    Args:
        target: HOST:PORT, http://HOST:PORT, or https://HOST:PORT with TLS.
        options: fields of `ClientOptions`: token or token_file, root_certificates, certificate, key, timeout_s, …
    """

    def __init__(self, target: str = DEFAULT_LISTEN, **options: Any) -> None:
        async def client() -> AsyncHiragClient:
            return AsyncHiragClient(target, **options)

        self._loop = LoopThread("hirag-dist-client", lambda: RuntimeError("this client is closed; make another"))
        weakref.finalize(self, self._loop.close)  # also at the end of the process
        self._inner = self._loop.run(client())

    retrieve = call(AsyncHiragClient.retrieve)
    retrieve_stream = stream(AsyncHiragClient.retrieve_stream)
    answer = call(AsyncHiragClient.answer)
    answer_stream = stream(AsyncHiragClient.answer_stream)
    describe = call(AsyncHiragClient.describe)
    list_indexes = call(AsyncHiragClient.list_indexes)
    get_entity = call(AsyncHiragClient.get_entity)
    find_path = call(AsyncHiragClient.find_path)
    get_community = call(AsyncHiragClient.get_community)
    get_document = call(AsyncHiragClient.get_document)
    wait_ready = call(AsyncHiragClient.wait_ready)
