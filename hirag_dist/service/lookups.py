"""Look-ups of the service: a request becomes a call of the engine, and its result a reply."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from hirag_dist.service.access_log import Context
from hirag_dist.service.engine import Engine
from hirag_dist.types import DEFAULT_CHARS, DEFAULT_MEMBERS, DEFAULT_RELATIONS, DEFAULT_SOURCES, AccessScope
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert import key_from_proto
from hirag_dist.wire.records import message_fields, message_of

LookupResponse = pb.GetEntityResponse | pb.FindPathResponse | pb.GetCommunityResponse | pb.GetDocumentResponse


@dataclass(frozen=True, slots=True)
class LookupReply:
    """A reply, and the number of entities, communities, relations and chunks in it."""

    message: LookupResponse
    items: int


def _message(kind: type[Any], found: Any) -> Any:
    return message_of(kind, **message_fields(found, kind))


Find = Callable[[Engine, float | None], Awaitable[LookupReply]]  # of the engine and the seconds left


def entity_lookup(request: Any, scope: AccessScope) -> Find:
    """Return the look-up of GetEntity.

    Raises:
        InvalidQuery: the id or name is blank or too long; so for the other look-ups.
    """
    entity = key_from_proto(request, "entity")

    async def find(engine: Engine, deadline_s: float | None) -> LookupReply:
        found = await engine.get_entity(
            entity,
            max_relations=request.max_relations or DEFAULT_RELATIONS,
            max_sources=request.max_sources or DEFAULT_SOURCES,
            scope=scope,
            deadline_s=deadline_s,
        )
        items = (found.relations, found.neighbours, found.ancestors, found.members, found.communities, found.sources)
        return LookupReply(_message(pb.GetEntityResponse, found), 1 + sum(map(len, items)))

    return find


def path_lookup(request: Any, scope: AccessScope) -> Find:
    """Return the look-up of FindPath."""
    source, target = (key_from_proto(request, name) for name in ("source", "target"))

    async def find(engine: Engine, deadline_s: float | None) -> LookupReply:
        found = await engine.find_path(source, target, scope=scope, deadline_s=deadline_s)
        return LookupReply(_message(pb.FindPathResponse, found), len(found.entities) + len(found.triples))

    return find


def community_lookup(request: Any, scope: AccessScope) -> Find:
    """Return the look-up of GetCommunity."""
    community = key_from_proto(request, "community_id")

    async def find(engine: Engine, deadline_s: float | None) -> LookupReply:
        found = await engine.get_community(
            community, max_members=request.max_members or DEFAULT_MEMBERS, scope=scope, deadline_s=deadline_s
        )
        related = (found.members, found.children, () if found.parent is None else (found.parent,))
        return LookupReply(_message(pb.GetCommunityResponse, found), 1 + sum(map(len, related)))

    return find


def document_lookup(request: Any, scope: AccessScope) -> Find:
    """Return the look-up of GetDocument."""
    document = key_from_proto(request, "document_id")

    async def find(engine: Engine, deadline_s: float | None) -> LookupReply:
        found = await engine.get_document(
            document,
            start=request.start,
            max_chars=request.max_chars or DEFAULT_CHARS,
            scope=scope,
            deadline_s=deadline_s,
        )
        return LookupReply(_message(pb.GetDocumentResponse, found), len(found.chunks))

    return find


class LookupMethods(ABC):
    """The RPCs that look up single items."""

    async def GetEntity(  # noqa: N802 - the names are the protocol's
        self, request: bytes, context: Context
    ) -> bytes:
        """Return an entity with its surroundings."""
        return await self.look_up("GetEntity", entity_lookup, request, context)

    async def FindPath(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return a shortest path between two entities."""
        return await self.look_up("FindPath", path_lookup, request, context)

    async def GetCommunity(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return a community with its report and members."""
        return await self.look_up("GetCommunity", community_lookup, request, context)

    async def GetDocument(  # noqa: N802
        self, request: bytes, context: Context
    ) -> bytes:
        """Return a part of a document's text."""
        return await self.look_up("GetDocument", document_lookup, request, context)

    @abstractmethod
    async def look_up(
        self, method: str, prepare: Callable[[Any, AccessScope], Find], request: bytes, context: Context
    ) -> bytes:
        """Return the reply of a look-up.

        Args:
            method: name of the RPC.
            prepare: checks the request, and returns the call of the engine.
            request: as it came.
            context: of the RPC.
        """
