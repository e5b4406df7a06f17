"""The client for ordinary code."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from hirag_dist.client.common import SERVICE_NAME, AnswerReader, ClientOptions, explain, not_ready, query_message
from hirag_dist.service._pb import query_pb2 as pb
from hirag_dist.service._pb import query_pb2_grpc
from hirag_dist.service.convert import info_from_proto, level_from_proto, retrieval_from_proto
from hirag_dist.service.options import DEFAULT_LISTEN
from hirag_dist.types import Answer, IndexInfo, Query, Retrieval


class HiragClient:
    """Asks a running service; usable from several threads, and as a context manager.

    Every call takes `timeout_s` (seconds, else that of the options) and `request_id` (for the service's log), and
    raises what the service raised: `InvalidQuery`, `ModelUnavailable`, …; `ServiceError` when none is in reach.

    Args:
        target: HOST:PORT.
        options: fields of `ClientOptions`: token, root_certificates, certificate, key, timeout_s, …

    Raises:
        ConfigError: the options do not fit together, or a file cannot be read.
    """

    def __init__(self, target: str = DEFAULT_LISTEN, **options: Any) -> None:
        self._options = ClientOptions(target=target, **options)
        credentials, arguments = self._options.credentials(), self._options.channel_options()
        if credentials is None:
            self._channel = grpc.insecure_channel(target, options=arguments)
        else:
            self._channel = grpc.secure_channel(target, credentials, options=arguments)
        generated: Any = query_pb2_grpc  # without types
        self._stub = generated.QueryServiceStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._channel.close()

    def retrieve(
        self,
        query: Query | str,
        *,
        omit_context: bool = False,
        omit_source_text: bool = False,
        timeout_s: float | None = None,
        request_id: str | None = None,
    ) -> Retrieval:
        """Return what the index holds about a question."""
        request = pb.RetrieveRequest(
            query=query_message(query), omit_context=omit_context, omit_source_text=omit_source_text
        )
        with self._explained():
            return retrieval_from_proto(self._stub.Retrieve(request, **self._call(timeout_s, request_id)).retrieval)

    def retrieve_stream(
        self,
        query: Query | str,
        *,
        omit_context: bool = False,
        omit_source_text: bool = False,
        timeout_s: float | None = None,
        request_id: str | None = None,
    ) -> Generator[tuple[str, Retrieval], None, None]:
        """Yield ("local", what was found so far), then global, bridge, sources, and ("done", everything)."""
        request = pb.RetrieveStreamRequest(
            query=query_message(query), omit_context=omit_context, omit_source_text=omit_source_text
        )
        for message in self._messages(self._stub.RetrieveStream, request, timeout_s, request_id):
            yield level_from_proto(message.level), retrieval_from_proto(message.retrieval)

    def answer(
        self,
        query: Query | str,
        *,
        omit_context: bool = False,
        omit_source_text: bool = False,
        timeout_s: float | None = None,
        request_id: str | None = None,
    ) -> Answer:
        """Return the answer to a question, with citations and the retrieval behind it."""
        reader = AnswerReader(self._options.target)
        request = pb.AnswerRequest(
            query=query_message(query), omit_context=omit_context, omit_source_text=omit_source_text
        )
        for message in self._messages(self._stub.Answer, request, timeout_s, request_id):
            reader.read(message)
        return reader.answer()

    def answer_stream(
        self,
        query: Query | str,
        *,
        omit_context: bool = False,
        omit_source_text: bool = False,
        timeout_s: float | None = None,
        request_id: str | None = None,
    ) -> Generator[Retrieval | str | Answer, None, None]:
        """Yield the retrieval, the text in pieces, and the answer. Closing the iterator cancels the call."""
        reader = AnswerReader(self._options.target)
        request = pb.AnswerRequest(
            query=query_message(query), omit_context=omit_context, omit_source_text=omit_source_text
        )
        for message in self._messages(self._stub.Answer, request, timeout_s, request_id):
            part = reader.read(message)
            if part is not None:
                yield part
        reader.answer()

    def describe(self, *, timeout_s: float | None = None, request_id: str | None = None) -> IndexInfo:
        """Return what the service serves."""
        with self._explained():
            call = self._call(timeout_s, request_id)
            return info_from_proto(self._stub.DescribeIndex(pb.DescribeIndexRequest(), **call).info)

    def wait_ready(self, timeout_s: float = 30.0) -> None:
        """Return once the service has a snapshot loaded.

        Raises:
            ServiceError: that takes longer than `timeout_s` seconds.
        """
        health: Any = health_pb2_grpc.HealthStub(self._channel)
        until, answered = time.monotonic() + timeout_s, False
        while (left := until - time.monotonic()) > 0:
            request = health_pb2.HealthCheckRequest(service=SERVICE_NAME)
            watch = health.Watch(request, timeout=left, wait_for_ready=True)
            try:
                for reply in watch:
                    answered = True
                    if reply.status == health_pb2.HealthCheckResponse.SERVING:
                        return
            except grpc.RpcError as error:
                if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                    raise explain(error, self._options.target) from error
            finally:
                watch.cancel()
        raise not_ready(self._options.target, timeout_s, answered)

    def _call(self, timeout_s: float | None, request_id: str | None) -> dict[str, Any]:
        timeout = self._options.timeout_s if timeout_s is None else timeout_s
        return {"timeout": timeout, "metadata": self._options.metadata(request_id)}

    def _messages(self, method: Any, request: Any, timeout_s: float | None, request_id: str | None) -> Iterator[Any]:
        call = method(request, **self._call(timeout_s, request_id))
        try:
            with self._explained():
                yield from call
        finally:
            call.cancel()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise explain(error, self._options.target) from error
