"""hirag-dist itself, asked in process as the other packages are; its index is built by its own command line."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from benchmarks.peers.job import Job
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import Query


class Adapter:
    """See `job.Adapter`."""

    retrieves: ClassVar[bool] = True

    def __init__(self, job: Job) -> None:
        self._folder = Path(job.folder)
        self._snapshot: Snapshot | None = None
        self._engine: QueryEngine | None = None

    async def index(self, documents: list[str]) -> None:
        """Raise: `runner` builds through `hirag-dist index`."""
        raise NotImplementedError("hirag-dist is built by its command line")

    async def open(self) -> None:
        config = load_config(str(self._folder / "hirag.yaml"), {}, {}).config
        self._snapshot = open_snapshot(Store(str(self._folder / "index")), None)
        self._engine = make_engine(config, self._snapshot, load_prompts(config.prompts))

    async def sizes(self) -> dict[str, int]:
        assert self._snapshot is not None
        return {
            name: self._snapshot.table(name).num_rows for name in ("entities", "relations", "communities", "reports")
        }

    async def answer(self, question: str) -> str:
        assert self._engine is not None
        return (await self._engine.answer(Query(question))).text

    async def context(self, question: str) -> str:
        assert self._engine is not None
        return (await self._engine.retrieve(Query(question))).context

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()
