"""Backends of the MCP server: a running service, asked on behalf of each caller, or an index in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, Protocol

from hirag_dist.client import AsyncHiragClient
from hirag_dist.errors import InvalidQuery
from hirag_dist.types import (
    AccessScope,
    Answer,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    IndexEntry,
    IndexInfo,
    PathDetails,
    Query,
    Retrieval,
)


@dataclass(frozen=True, slots=True)
class CallerContext:
    """One call of a tool.

    Attributes:
        token: bearer token of the caller; None: that of the connection, if it has one.
        timeout_s: seconds for the call.
        index: name of the index; empty for the default one.
    """

    token: str | None = None
    timeout_s: float | None = None
    index: str = ""


class Backend(Protocol):
    """An index or a service. Every method raises `HiragError` or TimeoutError only.

    Attributes:
        has_names: whether indexes have names, so that there may be several.
    """

    has_names: bool

    async def indexes(self, caller: CallerContext) -> Sequence[IndexEntry]:
        """Return the indexes that the caller may ask, by name."""
        ...

    async def describe(self, caller: CallerContext) -> IndexInfo:
        """Return the description of the index, as the caller may see it."""
        ...

    async def retrieve(self, query: Query, caller: CallerContext) -> Retrieval:
        """Return the whole result."""
        ...

    def retrieve_stream(self, query: Query, caller: CallerContext) -> AsyncGenerator[tuple[str, Retrieval], None]:
        """Yield (level, result so far), and ("done", whole result) at the end."""
        ...

    def answer_stream(self, query: Query, caller: CallerContext) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield the retrieval, the text in pieces, and the answer."""
        ...

    async def get_entity(
        self, entity: str, max_relations: int, max_sources: int, scope: AccessScope, caller: CallerContext
    ) -> EntityDetails:
        """Return an entity with its surroundings."""
        ...

    async def find_path(self, source: str, target: str, scope: AccessScope, caller: CallerContext) -> PathDetails:
        """Return a shortest path between two entities."""
        ...

    async def get_community(
        self, community_id: str, max_members: int, scope: AccessScope, caller: CallerContext
    ) -> CommunityDetails:
        """Return a community with its report and members."""
        ...

    async def get_document(
        self, document_id: str, start: int, max_chars: int, scope: AccessScope, caller: CallerContext
    ) -> DocumentPart:
        """Return a part of a document's text."""
        ...

    async def close(self) -> None:
        """Release files and connections."""
        ...


class ServiceBackend:
    """A running service. The token of a call is the caller's, so the service's labels and quotas hold for it."""

    def __init__(self, client: AsyncHiragClient) -> None:
        self._client = client
        self.has_names = True
        self.close: Callable[[], Any] = client.close

    async def indexes(self, caller: CallerContext) -> Sequence[IndexEntry]:
        """Return the indexes that the caller may ask, by name."""
        return await self._client.list_indexes(token=caller.token, timeout_s=caller.timeout_s)

    async def describe(self, caller: CallerContext) -> IndexInfo:
        """Return the description of the index, as the caller may see it."""
        return await self._client.describe(**_call(caller))

    async def retrieve(self, query: Query, caller: CallerContext) -> Retrieval:
        """Return the whole result."""
        return await self._client.retrieve(query, **_call(caller))

    async def retrieve_stream(self, query: Query, caller: CallerContext) -> AsyncGenerator[tuple[str, Retrieval], None]:
        """Yield (level, result so far), and ("done", whole result) at the end."""
        async with aclosing(self._client.retrieve_stream(query, **_call(caller))) as levels:
            async for level in levels:
                yield level

    async def answer_stream(
        self, query: Query, caller: CallerContext
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield the retrieval, the text in pieces, and the answer."""
        async with aclosing(self._client.answer_stream(query, **_call(caller))) as parts:
            async for part in parts:
                yield part

    async def get_entity(
        self, entity: str, max_relations: int, max_sources: int, scope: AccessScope, caller: CallerContext
    ) -> EntityDetails:
        """Return an entity with its surroundings."""
        return await self._client.get_entity(
            entity, max_relations=max_relations, max_sources=max_sources, **_call(caller), **_scope(scope)
        )

    async def find_path(self, source: str, target: str, scope: AccessScope, caller: CallerContext) -> PathDetails:
        """Return a shortest path between two entities."""
        return await self._client.find_path(source, target, **_call(caller), **_scope(scope))

    async def get_community(
        self, community_id: str, max_members: int, scope: AccessScope, caller: CallerContext
    ) -> CommunityDetails:
        """Return a community with its report and members."""
        return await self._client.get_community(community_id, max_members=max_members, **_call(caller), **_scope(scope))

    async def get_document(
        self, document_id: str, start: int, max_chars: int, scope: AccessScope, caller: CallerContext
    ) -> DocumentPart:
        """Return a part of a document's text."""
        return await self._client.get_document(
            document_id, start=start, max_chars=max_chars, **_call(caller), **_scope(scope)
        )


class IndexBackend:
    """An index opened in this process, for the user who started the server: it has no other callers.

    Args:
        opening: task that opens the index, such as `api.index.AsyncIndex`. Calls wait for it: the first opening on a
            machine compiles for up to a minute, longer than some clients wait for a server to start.
        reach: the labels that are held; None: everything is visible.
    """

    def __init__(self, opening: asyncio.Future[Any], reach: frozenset[str] | None = None) -> None:
        self._opening = opening
        self._reach = reach
        self.has_names = False

    async def indexes(self, caller: CallerContext) -> Sequence[IndexEntry]:
        """Return the only index."""
        return [IndexEntry("", default=True)]

    async def close(self) -> None:
        """Release files and connections."""
        if not self._opening.done():
            self._opening.cancel()
            await asyncio.wait({self._opening})
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._opening.result().close()

    async def describe(self, caller: CallerContext) -> IndexInfo:
        """Return the description of the index."""
        info: IndexInfo = (await self._of(caller)).describe(self._reach)
        return info

    async def retrieve(self, query: Query, caller: CallerContext) -> Retrieval:
        """Return the whole result."""
        query = replace(query, reach=self._reach)
        found: Retrieval = await (await self._of(caller)).retrieve(query, timeout_s=caller.timeout_s)
        return found

    async def retrieve_stream(self, query: Query, caller: CallerContext) -> AsyncGenerator[tuple[str, Retrieval], None]:
        """Yield (level, result so far), and ("done", whole result) at the end."""
        query = replace(query, reach=self._reach)
        async with aclosing((await self._of(caller)).retrieve_stream(query, timeout_s=caller.timeout_s)) as levels:
            async for level in levels:
                yield level

    async def answer_stream(
        self, query: Query, caller: CallerContext
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield the retrieval, the text in pieces, and the answer."""
        query = replace(query, reach=self._reach)
        async with aclosing((await self._of(caller)).answer_stream(query, timeout_s=caller.timeout_s)) as parts:
            async for part in parts:
                yield part

    async def get_entity(
        self, entity: str, max_relations: int, max_sources: int, scope: AccessScope, caller: CallerContext
    ) -> EntityDetails:
        """Return an entity with its surroundings."""
        found: EntityDetails = await (await self._of(caller)).get_entity(
            entity, max_relations=max_relations, max_sources=max_sources, **self._options(scope, caller)
        )
        return found

    async def find_path(self, source: str, target: str, scope: AccessScope, caller: CallerContext) -> PathDetails:
        """Return a shortest path between two entities."""
        found: PathDetails = await (await self._of(caller)).find_path(source, target, **self._options(scope, caller))
        return found

    async def get_community(
        self, community_id: str, max_members: int, scope: AccessScope, caller: CallerContext
    ) -> CommunityDetails:
        """Return a community with its report and members."""
        found: CommunityDetails = await (await self._of(caller)).get_community(
            community_id, max_members=max_members, **self._options(scope, caller)
        )
        return found

    async def get_document(
        self, document_id: str, start: int, max_chars: int, scope: AccessScope, caller: CallerContext
    ) -> DocumentPart:
        """Return a part of a document's text."""
        found: DocumentPart = await (await self._of(caller)).get_document(
            document_id, start=start, max_chars=max_chars, **self._options(scope, caller)
        )
        return found

    async def _of(self, caller: CallerContext) -> Any:
        if caller.index:
            raise InvalidQuery(f"index: there is no {caller.index!r}; this server has one index, so leave it out")
        async with asyncio.timeout(caller.timeout_s):
            return await asyncio.shield(self._opening)

    def _options(self, scope: AccessScope, caller: CallerContext) -> dict[str, Any]:
        return _scope(scope) | {"reach": self._reach, "timeout_s": caller.timeout_s}


def _call(caller: CallerContext) -> dict[str, Any]:
    options: dict[str, Any] = {"token": caller.token, "timeout_s": caller.timeout_s}
    return options | ({"index": caller.index} if caller.index else {})


def _scope(scope: AccessScope) -> dict[str, Any]:
    return {"labels": scope.labels, "filter": scope.filter, "as_of": scope.as_of}
