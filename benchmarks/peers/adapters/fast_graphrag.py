"""fast-graphrag: its one way to ask; storages in files."""

from __future__ import annotations

from typing import ClassVar

from fast_graphrag import GraphRAG, QueryParam
from fast_graphrag._llm import OpenAIEmbeddingService, OpenAILLMService

from benchmarks.peers.job import API_KEY, CHAT_MODEL, EMBEDDING_MODEL, Job

# what it asks of its user; the corpus is of mixed kind
_DOMAIN = (
    "Identify the people, places, organizations, events and ideas that the documents tell of, and their relations."
)
_EXAMPLES = "What is the main theme of the text?\nWho are the main figures, and how are they related?"
_TYPES = ["organization", "person", "location", "event", "technology", "concept", "product"]


class Adapter:
    """See `job.Adapter`."""

    retrieves: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        at = {"base_url": job.base_url, "api_key": API_KEY}
        embedder = OpenAIEmbeddingService(
            model=EMBEDDING_MODEL,
            embedding_dim=job.dim,
            rate_limit_per_minute=False,  # its default of 500 a minute is a limit that no other package sets itself
            **at,
        )
        self._rag = GraphRAG(
            working_dir=job.folder,
            domain=_DOMAIN,
            example_queries=_EXAMPLES,
            entity_types=_TYPES,
            config=GraphRAG.Config(llm_service=OpenAILLMService(model=CHAT_MODEL, **at), embedding_service=embedder),
        )

    async def index(self, documents: list[str]) -> None:
        await self._rag.async_insert(documents, show_progress=False)

    async def open(self) -> None:
        """Load the index once; the package's synchronous `query` would load it for each question."""
        await self._rag.state_manager.query_start()

    async def sizes(self) -> dict[str, int]:
        state = self._rag.state_manager
        return {"entities": await state.get_num_entities(), "relations": await state.get_num_relations()}

    async def answer(self, question: str) -> str:
        return str((await self._rag.async_query(question)).response)

    async def context(self, question: str) -> str:
        found = (await self._rag.async_query(question, QueryParam(only_context=True))).context
        return found.truncate({"entities": 16000, "relations": 12000, "chunks": 36000}, output_context_str=True)

    async def close(self) -> None:
        await self._rag.state_manager.query_done()
