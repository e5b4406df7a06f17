"""Protocol of the engine that answers the service's requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from hirag_dist.types import (
    AccessScope,
    Answer,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    IndexInfo,
    PathDetails,
    Query,
    Retrieval,
)


class Engine(Protocol):
    """An open snapshot that answers queries. Every method raises `HiragError`s only."""

    @property
    def info(self) -> IndexInfo:
        """Description of the snapshot."""
        ...

    @property
    def question_cache(self) -> tuple[int, int]:
        """Hits and misses of the cache of question vectors."""
        ...

    def describe(self, reach: frozenset[str] | None, expression: str = "", as_of: str = "") -> IndexInfo:
        """Return the description for a caller who holds these labels; None: without restriction.

        Args:
            expression, as_of: filter and date as of a query: only documents that meet them are counted.
        """
        ...

    async def retrieve(self, query: Query, *, deadline_s: float | None = None) -> Retrieval:
        """Return the result after at most `deadline_s` seconds; `Retrieval.partial` names the levels cut off."""
        ...

    def retrieve_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[tuple[str, Retrieval], None]:
        """Yield (level, result so far) for local, global, bridge and sources, then ("done", whole result)."""
        ...

    def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield the retrieval, the text in pieces, and the answer."""
        ...

    async def get_entity(
        self, entity: str, *, max_relations: int, max_sources: int, scope: AccessScope, deadline_s: float | None = None
    ) -> EntityDetails:
        """Return an entity with its surroundings."""
        ...

    async def find_path(
        self, source: str, target: str, *, scope: AccessScope, deadline_s: float | None = None
    ) -> PathDetails:
        """Return a shortest path between two entities."""
        ...

    async def get_community(
        self, community_id: str, *, max_members: int, scope: AccessScope, deadline_s: float | None = None
    ) -> CommunityDetails:
        """Return a community with its report and members."""
        ...

    async def get_document(
        self, document_id: str, *, start: int, max_chars: int, scope: AccessScope, deadline_s: float | None = None
    ) -> DocumentPart:
        """Return a part of a document's text."""
        ...

    async def close(self) -> None:
        """Release files and connections. Called once, when no request uses the engine."""
        ...
