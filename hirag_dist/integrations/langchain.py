"""LangChain: a retriever over a service or an open index. Needs the extra `langchain`.

>>> retriever = HiragRetriever(source="127.0.0.1:50051", k=4)  # doctest: +SKIP
>>> documents = retriever.invoke("Who built the lighthouse?")  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from typing import Any

from hirag_dist.integrations.source import SETTINGS, Level, RetrievalSource, RetrieverSettings

try:
    from langchain_core.callbacks.manager import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field, PrivateAttr, SecretStr
except ModuleNotFoundError as error:
    raise ImportError(f"{__name__} needs langchain-core; pip install 'hirag-dist[langchain]'") from error


class HiragRetriever(BaseRetriever):
    """Retriever of the chunks, entities, community reports or paths that an index has for a question.

    Each field but `source` and `client_options` can also be given to one call: `retriever.invoke("…", k=3)`; so can
    `vector`, the question's embedding. Asynchronous calls run in a thread. Errors are those of `hirag_dist.errors`.

    Metadata of a document: `level`, `score`, `source` (its URI, unless its own metadata has one), `snapshot_id`,
    `mode`, `partial` if the deadline cut levels off, and the fields of its record: of a chunk `chunk_id`,
    `document_id`, `title`, `uri`, `start`, `end`, `places`, and the metadata of its document.

    Attributes:
        source: HOST:PORT of a service, a client (`hirag_dist.client`), or an open index (`hirag_dist.open_index`).
        client_options: for HOST:PORT, fields of `ClientOptions`: token_file, root_certificates, …
        k: documents of each level at most; None for all that the retrieval has.
        levels: which records become documents, in this order: sources (chunks), global (community reports), local
            (entities), bridge (paths with their relations).
        mode, top_n, top_m, top_c, community_level, labels, filter, as_of: as in `hirag_dist.Query`.
        reach: for an open index, the labels that the caller holds; a service decides by the token.
        index: name of the index in a service with several.
        token: bearer token of the calls, instead of the client's.
        timeout_s: seconds for a call.
    """

    model_config = ConfigDict(extra="forbid")

    source: Any = Field(repr=False)
    client_options: dict[str, Any] = Field(default_factory=dict, repr=False)
    k: int | None = Field(default=None, ge=1)
    levels: tuple[Level, ...] = ("sources",)
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    labels: tuple[str, ...] = ()
    filter: str = ""
    as_of: str = ""
    reach: frozenset[str] | None = None
    index: str = ""
    token: SecretStr | None = None
    timeout_s: float | None = None

    _connection: RetrievalSource = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """Prepare the connection; it is opened at the first call.

        Raises:
            ConfigError: the options of the client contradict each other, or a file cannot be read.
            TypeError: the source is no address, client or index, or an option is unknown.
        """
        super().model_post_init(context)
        self._connection = RetrievalSource(self.source, self.client_options)
        self._settings({}).arguments(self._connection)  # checks them

    def close(self) -> None:
        """Close the connection to HOST:PORT; a client or index that was given stays open."""
        self._connection.close()

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **settings: Any
    ) -> list[Document]:
        asked = self._settings(settings)
        found = asked.documents(self._connection.retrieve(asked.query(query), asked.arguments(self._connection)))
        return [
            Document(id=one.id, page_content=one.text, metadata={"source": one.metadata.get("uri", ""), **one.metadata})
            for one in found
        ]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **settings: Any
    ) -> list[Document]:
        synchronous = run_manager.get_sync()
        return await asyncio.to_thread(self._get_relevant_documents, query, run_manager=synchronous, **settings)

    def _settings(self, overrides: dict[str, Any]) -> RetrieverSettings:
        own = {name: getattr(self, name) for name in SETTINGS if name in type(self).model_fields}
        given = own | overrides
        if isinstance(given["token"], SecretStr):
            given["token"] = given["token"].get_secret_value()
        return RetrieverSettings().merged(given)
