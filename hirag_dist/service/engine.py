"""What the service asks of the thing that answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from hirag_dist.types import Answer, IndexInfo, Query, Retrieval


class Engine(Protocol):
    """One open snapshot that answers questions. Every method raises `HiragError`s only."""

    @property
    def info(self) -> IndexInfo:
        """What is in the snapshot."""
        ...

    @property
    def question_cache(self) -> tuple[int, int]:
        """How many questions' vectors were remembered, and how many had to be made."""
        ...

    def describe(self, reach: frozenset[str] | None) -> IndexInfo:
        """What of that a caller may know who holds these labels; None: all of it."""
        ...

    async def retrieve(self, query: Query, *, deadline_s: float | None = None) -> Retrieval:
        """Return what is found within `deadline_s` seconds; levels cut off are named in `Retrieval.partial`."""
        ...

    def retrieve_stream(self, query: Query, *, deadline_s: float | None = None) -> AsyncIterator[tuple[str, Retrieval]]:
        """Yield (level, what was found so far) for local, global, bridge and sources, then ("done", everything)."""
        ...

    def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncIterator[Retrieval | str | Answer]:
        """Yield the retrieval, the text in pieces, and the answer."""
        ...

    async def close(self) -> None:
        """Let go of files and connections. Called once, when no request is using the engine."""
        ...
