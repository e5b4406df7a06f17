"""LlamaIndex: a retriever and a query engine over a service or an open index. Needs the extra `llamaindex`.

>>> engine = HiragQueryEngine("127.0.0.1:50051")  # doctest: +SKIP
>>> print(engine.query("Who built the lighthouse?"))  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import aclosing, closing
from typing import Any

from hirag_dist.errors import ServiceError
from hirag_dist.integrations.source import RetrievalSource, RetrievedDocument, RetrieverSettings
from hirag_dist.types import Answer, Retrieval

try:
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.base.response.schema import (
        RESPONSE_TYPE,
        AsyncStreamingResponse,
        Response,
        StreamingResponse,
    )
    from llama_index.core.callbacks import CallbackManager, CBEventType, EventPayload
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        ObjectType,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs llama-index-core; pip install 'hirag-dist[llamaindex]'") from error

_FOR_MODELS = ("title", "uri")  # what a model reads of a node's metadata; the rest are ids and numbers


class HiragRetriever(BaseRetriever):  # type: ignore[misc, unused-ignore]
    """Retriever of the chunks, entities, community reports or paths that an index has for a question.

    A node has the text, `start_char_idx` and `end_char_idx` of a chunk in its document, the document as its SOURCE
    relationship, and metadata: `level`, `score`, `snapshot_id`, `mode`, `partial` if the deadline cut levels off, and
    the fields of its record. Errors are those of `hirag_dist.errors`.

    Args:
        source: HOST:PORT of a service, a client (`hirag_dist.client`), or an open index (`hirag_dist.open_index`).
        similarity_top_k: nodes of each level at most; None for all that the retrieval has.
        client_options: for HOST:PORT, fields of `ClientOptions`: token_file, root_certificates, …
        callback_manager: of LlamaIndex.
        verbose: as in LlamaIndex.
        settings: fields of `RetrieverSettings`: levels, mode, labels, filter, index, token, timeout_s, …

    Raises:
        ConfigError: the options of the client contradict each other, or a file cannot be read.
        TypeError: the source is no address, client or index, or a keyword argument is unknown.
        ValueError: a setting is out of bounds, or does not fit the source.
    """

    def __init__(
        self,
        source: Any,
        *,
        similarity_top_k: int | None = None,
        client_options: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._calls = _Calls(source, client_options, {"k": similarity_top_k, **settings})

    def close(self) -> None:
        """Close the connection to HOST:PORT; a client or index that was given stays open."""
        self._calls.connection.close()

    async def aclose(self) -> None:
        """Close the connections to HOST:PORT, that of the running event loop too."""
        await self._calls.connection.aclose()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        calls = self._calls
        return calls.nodes(calls.connection.retrieve(calls.query(query_bundle), calls.arguments))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        calls = self._calls
        return calls.nodes(await calls.connection.aretrieve(calls.query(query_bundle), calls.arguments))


class HiragQueryEngine(BaseQueryEngine):  # type: ignore[misc, unused-ignore]
    """Query engine whose answers come from the index's own answering: no model of LlamaIndex is called.

    A response has the answer with its references ("[S1]"), the retrieved records as source nodes, and metadata:
    `citations` (`ref`, `kind`, `id`, `title`), `dropped_citations`, `model`, `input_tokens`, `output_tokens`,
    `snapshot_id`, `mode`. With `streaming` the text comes in pieces as it is written; the metadata is filled at its
    end.

    Args:
        source: as for `HiragRetriever`.
        streaming: return a response whose text is a generator.
        similarity_top_k: source nodes of each level at most; None for all.
        client_options: as for `HiragRetriever`.
        callback_manager: of LlamaIndex.
        settings: fields of `RetrieverSettings`; `mode` may also be graphrag-global or text-map-reduce.

    Raises:
        ConfigError, TypeError, ValueError: as for `HiragRetriever`.
    """

    def __init__(
        self,
        source: Any,
        *,
        streaming: bool = False,
        similarity_top_k: int | None = None,
        client_options: Mapping[str, Any] | None = None,
        callback_manager: CallbackManager | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager)
        self._streaming = streaming
        self._calls = _Calls(source, client_options, {"k": similarity_top_k, **settings})

    def close(self) -> None:
        """Close the connection to HOST:PORT; a client or index that was given stays open."""
        self._calls.connection.close()

    async def aclose(self) -> None:
        """Close the connections to HOST:PORT, that of the running event loop too."""
        await self._calls.connection.aclose()

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}  # the service has the prompts

    def retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Return the source nodes of a question without an answer."""
        calls = self._calls
        return calls.nodes(calls.connection.retrieve(calls.query(query_bundle), calls.arguments))

    def _query(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        calls, asked = self._calls, self._calls.query(query_bundle)
        with self.callback_manager.event(CBEventType.QUERY, {EventPayload.QUERY_STR: asked.question}) as event:
            response: RESPONSE_TYPE
            if self._streaming:
                response = self._stream(calls.connection.answer_stream(asked, calls.arguments))
            else:
                response = calls.response(calls.connection.answer(asked, calls.arguments))
            event.on_end({EventPayload.RESPONSE: response})
        return response

    async def _aquery(self, query_bundle: QueryBundle) -> RESPONSE_TYPE:
        calls, asked = self._calls, self._calls.query(query_bundle)
        with self.callback_manager.event(CBEventType.QUERY, {EventPayload.QUERY_STR: asked.question}) as event:
            response: RESPONSE_TYPE
            if self._streaming:
                response = await self._astream(calls.connection.aanswer_stream(asked, calls.arguments))
            else:
                response = calls.response(await calls.connection.aanswer(asked, calls.arguments))
            event.on_end({EventPayload.RESPONSE: response})
        return response

    def _stream(self, parts: Generator[Retrieval | str | Answer, None, None]) -> StreamingResponse:
        """Return a response with the source nodes of the first retrieval, and the text to come."""
        first = next(parts, None)
        if not isinstance(first, Retrieval):
            raise ServiceError("the answer came without its retrieval")
        nodes, metadata = self._calls.nodes(first), dict[str, Any]()

        def pieces() -> Generator[str, None, None]:
            with closing(parts):
                for part in parts:
                    if isinstance(part, str):
                        yield part
                    elif isinstance(part, Retrieval):  # the second one of a map-reduce mode
                        nodes[:] = self._calls.nodes(part)
                    else:
                        metadata.update(_metadata(part))

        return StreamingResponse(response_gen=pieces(), source_nodes=nodes, metadata=metadata)

    async def _astream(self, parts: AsyncGenerator[Retrieval | str | Answer, None]) -> AsyncStreamingResponse:
        first = await anext(parts, None)
        if not isinstance(first, Retrieval):
            raise ServiceError("the answer came without its retrieval")
        nodes, metadata = self._calls.nodes(first), dict[str, Any]()

        async def pieces() -> AsyncGenerator[str, None]:
            async with aclosing(parts):
                async for part in parts:
                    if isinstance(part, str):
                        yield part
                    elif isinstance(part, Retrieval):  # the second one of a map-reduce mode
                        nodes[:] = self._calls.nodes(part)
                    else:
                        metadata.update(_metadata(part))

        return AsyncStreamingResponse(response_gen=pieces(), source_nodes=nodes, metadata=metadata)


class _Calls:
    """RetrievalSource, settings and conversion of a retriever or query engine."""

    def __init__(self, source: Any, client_options: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        self.connection = RetrievalSource(source, client_options or {})
        self._settings = RetrieverSettings().merged(settings)
        self.arguments = self._settings.arguments(self.connection)

    def query(self, bundle: QueryBundle) -> Any:
        """Return the query for a bundle. Its embedding is not used: it is of an embedder of LlamaIndex."""
        return self._settings.query(bundle.query_str)

    def nodes(self, retrieval: Retrieval) -> list[NodeWithScore]:
        """Return the nodes of a retrieval."""
        return [NodeWithScore(node=_node(one), score=one.score) for one in self._settings.documents(retrieval)]

    def response(self, answer: Answer) -> Response:
        """Return the response for an answer."""
        return Response(answer.text, source_nodes=self.nodes(answer.retrieval), metadata=_metadata(answer))


def _metadata(answer: Answer) -> dict[str, Any]:
    return {
        "citations": [{"ref": one.ref, "kind": one.kind, "id": one.id, "title": one.title} for one in answer.citations],
        "dropped_citations": answer.dropped_citations,
        "model": answer.model,
        "input_tokens": answer.input_tokens,
        "output_tokens": answer.output_tokens,
        "snapshot_id": answer.retrieval.snapshot_id,
        "mode": answer.retrieval.mode,
    }


def _node(document: RetrievedDocument) -> TextNode:
    metadata = dict(document.metadata)
    unread = [name for name in metadata if name not in _FOR_MODELS]
    relationships = {}
    if "document_id" in metadata:
        origin = {name: metadata[name] for name in ("title", "uri")}
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(
            node_id=metadata["document_id"], node_type=ObjectType.DOCUMENT, metadata=origin
        )
    return TextNode(
        id_=document.id,
        text=document.text,
        metadata=metadata,
        start_char_idx=metadata.get("start"),
        end_char_idx=metadata.get("end"),
        relationships=relationships,
        excluded_llm_metadata_keys=unread,
        excluded_embed_metadata_keys=unread,
    )
