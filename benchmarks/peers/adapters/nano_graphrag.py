"""nano-graphrag: local search; storages in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

from nano_graphrag import GraphRAG, QueryParam
from nano_graphrag._llm import gpt_4o_mini_complete, openai_embedding
from nano_graphrag._utils import EmbeddingFunc

from benchmarks.peers.job import THRESHOLD, Job


class Adapter:
    """See `job.Adapter`. Its client takes the endpoint from OPENAI_BASE_URL."""

    retrieves: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        self._folder = Path(job.folder)
        self._rag = GraphRAG(
            working_dir=job.folder,
            best_model_func=gpt_4o_mini_complete,
            cheap_model_func=gpt_4o_mini_complete,
            embedding_func=EmbeddingFunc(embedding_dim=job.dim, max_token_size=8192, func=openai_embedding.func),
            query_better_than_threshold=THRESHOLD,
        )

    async def index(self, documents: list[str]) -> None:
        await self._rag.ainsert(documents)

    async def open(self) -> None:
        """Nothing: the index was read when the object was made."""

    async def sizes(self) -> dict[str, int]:
        graph = self._rag.chunk_entity_relation_graph._graph
        reports = json.loads((self._folder / "kv_store_community_reports.json").read_text(encoding="utf-8"))
        return {
            "entities": graph.number_of_nodes(),
            "relations": graph.number_of_edges(),
            "communities": len(reports),
            "reports": sum(1 for each in reports.values() if each["report_json"].get("summary")),
        }

    async def answer(self, question: str) -> str:
        return str(await self._rag.aquery(question, QueryParam(mode="local")))

    async def context(self, question: str) -> str:
        return str(await self._rag.aquery(question, QueryParam(mode="local", only_need_context=True)))

    async def close(self) -> None:
        """Nothing is held open."""
