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
        self._keep_replies = job.keep_replies
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
        await self.add({f"d{number:05}": text for number, text in enumerate(documents)})

    async def add(self, documents: dict[str, str]) -> None:
        paths = [f"{own}.txt" for own in documents]
        await self._rag.initialize_storages()
        await self._rag.ainsert(list(documents.values()), ids=list(documents), file_paths=paths)
        await self._rag.finalize_storages()

    async def remove(self, documents: dict[str, str]) -> None:
        """Delete by id, with the cached replies about the document unless they are kept."""
        await self._rag.initialize_storages()
        for own in documents:
            done = await self._rag.adelete_by_doc_id(own, delete_llm_cache=not self._keep_replies)
            if done.status != "success":
                raise RuntimeError(f"{own}: {done.status}: {done.message}")
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
