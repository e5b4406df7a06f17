"""LlamaIndex: a retriever over a service or an open index. Needs the extra `llamaindex`.

>>> retriever = HiragRetriever("127.0.0.1:50051", similarity_top_k=4)  # doctest: +SKIP
>>> nodes = retriever.retrieve("Who built the lighthouse?")  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from hirag_dist.integrations.source import RetrievalSource, RetrievedDocument, RetrieverSettings

try:
    from llama_index.core.base.base_retriever import BaseRetriever
    from llama_index.core.callbacks import CallbackManager
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
        self._connection = RetrievalSource(source, client_options or {})
        self._settings = RetrieverSettings().merged({"k": similarity_top_k, **settings})
        self._arguments = self._settings.arguments(self._connection)

    def close(self) -> None:
        """Close the connection to HOST:PORT; a client or index that was given stays open."""
        self._connection.close()

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        # the bundle's embedding is not used: it is of an embedder of LlamaIndex
        found = self._connection.retrieve(self._settings.query(query_bundle.query_str), self._arguments)
        return [NodeWithScore(node=_node(one), score=one.score) for one in self._settings.documents(found)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


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
