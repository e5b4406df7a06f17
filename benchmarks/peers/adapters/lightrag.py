"""lightrag-hku: mode `mix`, its default; storages in files."""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from lightrag import LightRAG, QueryParam
from lightrag.llm.openai import openai_complete_if_cache, openai_embed
from lightrag.utils import EmbeddingFunc

from benchmarks.peers.job import API_KEY, CHAT_MODEL, EMBEDDING_MODEL, THRESHOLD, Job


class Adapter:
    """See `job.Adapter`."""

    retrieves: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        at = {"base_url": job.base_url, "api_key": API_KEY}
        self._rag = LightRAG(
            working_dir=job.folder,
            llm_model_func=partial(openai_complete_if_cache, CHAT_MODEL, **at),
            llm_model_name=CHAT_MODEL,
            embedding_func=EmbeddingFunc(
                embedding_dim=job.dim,
                max_token_size=8192,
                func=partial(openai_embed.func, model=EMBEDDING_MODEL, **at),
            ),
            vector_db_storage_cls_kwargs={"cosine_better_than_threshold": THRESHOLD},
        )

    async def index(self, documents: list[str]) -> None:
        names = [f"d{number:05}" for number in range(len(documents))]
        await self._rag.initialize_storages()
        await self._rag.ainsert(documents, ids=names, file_paths=[f"{name}.txt" for name in names])
        await self._rag.finalize_storages()

    async def open(self) -> None:
        await self._rag.initialize_storages()

    async def sizes(self) -> dict[str, int]:
        graph = await self._rag.chunk_entity_relation_graph._get_graph()
        return {"entities": graph.number_of_nodes(), "relations": graph.number_of_edges()}

    async def answer(self, question: str) -> str:
        return str(await self._rag.aquery(question, QueryParam(mode="mix", enable_rerank=False)))

    async def context(self, question: str) -> str:
        asked = QueryParam(mode="mix", only_need_context=True, enable_rerank=False)
        return str(await self._rag.aquery(question, asked))

    async def close(self) -> None:
        await self._rag.finalize_storages()
