"""nano-graphrag: local search; storages in files."""

from __future__ import annotations

from nano_graphrag import GraphRAG, QueryParam
from nano_graphrag._llm import gpt_4o_mini_complete, openai_embedding
from nano_graphrag._utils import EmbeddingFunc

from benchmarks.peers.adapters.working_folder import WorkingFolder
from benchmarks.peers.job import THRESHOLD, Job


class Adapter(WorkingFolder):
    """See `job.Adapter`. Its client takes the endpoint from OPENAI_BASE_URL."""

    def __init__(self, job: Job) -> None:
        rag = GraphRAG(
            working_dir=job.folder,
            best_model_func=gpt_4o_mini_complete,
            cheap_model_func=gpt_4o_mini_complete,
            embedding_func=EmbeddingFunc(embedding_dim=job.dim, max_token_size=8192, func=openai_embedding.func),
            query_better_than_threshold=THRESHOLD,
        )
        super().__init__(job.folder, rag, QueryParam, "local")
