"""graphrag (Microsoft): the standard method, local search; Parquet files and LanceDB."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from graphrag.api import build_index
from graphrag.config.embeddings import entity_description_embedding
from graphrag.config.load_config import load_config
from graphrag.query.factory import get_local_search_engine
from graphrag.query.indexer_adapters import (
    read_indexer_entities,
    read_indexer_relationships,
    read_indexer_reports,
    read_indexer_text_units,
)
from graphrag.utils.api import get_embedding_store

from benchmarks.peers.job import API_KEY, Job
from benchmarks.peers.settings import graphrag_settings

_LEVEL = 2  # the default of its command line


class Adapter:
    """See `job.Adapter`."""

    retrieves: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        self._folder = Path(job.folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = graphrag_settings(self._folder, job.base_url, API_KEY, job.dim)
        (self._folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        self._config = load_config(self._folder)
        self._engine: Any = None

    async def index(self, documents: list[str]) -> None:
        inputs = self._folder / "input"
        inputs.mkdir(exist_ok=True)
        for number, text in enumerate(documents):
            (inputs / f"d{number:05}.txt").write_text(text, encoding="utf-8")
        failed = [each for each in await build_index(self._config) if each.error is not None]
        if failed:
            raise RuntimeError(f"workflow {failed[0].workflow}: {failed[0].error}")

    async def open(self) -> None:
        """Make the search engine once; the package's `api.local_search` would make it for each question."""
        entities, communities, reports = (
            self._table(name) for name in ("entities", "communities", "community_reports")
        )
        self._engine = get_local_search_engine(
            config=self._config,
            reports=read_indexer_reports(reports, communities, _LEVEL),
            text_units=read_indexer_text_units(self._table("text_units")),
            entities=read_indexer_entities(entities, communities, _LEVEL),
            relationships=read_indexer_relationships(self._table("relationships")),
            covariates={"claims": []},
            description_embedding_store=get_embedding_store(self._config.vector_store, entity_description_embedding),
            response_type="multiple paragraphs",
        )

    async def sizes(self) -> dict[str, int]:
        names = {
            "entities": "entities",
            "relations": "relationships",
            "communities": "communities",
            "reports": "community_reports",
        }
        return {size: len(self._table(name)) for size, name in names.items()}

    async def answer(self, question: str) -> str:
        return str((await self._engine.search(question)).response)

    async def context(self, question: str) -> str:
        builder = self._engine.context_builder
        return str(builder.build_context(query=question, **self._engine.context_builder_params).context_chunks)

    async def close(self) -> None:
        """Nothing is held open."""

    def _table(self, name: str) -> pd.DataFrame:
        return pd.read_parquet(self._folder / "output" / f"{name}.parquet")
