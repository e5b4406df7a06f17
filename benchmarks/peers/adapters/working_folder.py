"""Common part of nano-graphrag and the HiRAG reference, which is derived from it: a working folder, and `aquery`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar


class WorkingFolder:
    """See `job.Adapter`."""

    retrieves: ClassVar[bool] = True

    def __init__(self, folder: str, rag: Any, param: Callable[..., Any], mode: str) -> None:
        """Take a package's object.

        Args:
            folder: where its storages are.
            rag: with `ainsert` and `aquery`.
            param: makes the parameters of a query.
            mode: of all queries.
        """
        self._folder = Path(folder)
        self._rag = rag
        self._param = param
        self._mode = mode

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
        return str(await self._rag.aquery(question, self._param(mode=self._mode)))

    async def context(self, question: str) -> str:
        return str(await self._rag.aquery(question, self._param(mode=self._mode, only_need_context=True)))

    async def close(self) -> None:
        """Nothing is held open."""
