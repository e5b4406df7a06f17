"""Conversion of look-ups between protobuf messages and the package's records, both ways. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hirag_dist.errors import InvalidQuery
from hirag_dist.types import (
    AccessScope,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    PathDetails,
)
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_items import (
    communities_from_proto,
    entities_from_proto,
    fill_community,
    fill_entity,
    fill_path,
    fill_source,
    fill_triple,
    paths_from_proto,
    sources_from_proto,
    triples_from_proto,
)
from hirag_dist.wire.convert_query import scope_fields
from hirag_dist.wire.convert_results import cleaned, text_to_proto
from hirag_dist.wire.convert_values import metadata_from_proto, metadata_to_proto

M = TypeVar("M")
D = TypeVar("D", EntityDetails, PathDetails, CommunityDetails, DocumentPart)
_MAX_KEY_CHARACTERS = 1000  # of an id or a name


def lookup_request(kind: Callable[..., M], **values: Any) -> M:
    """Return the request of a look-up.

    Args:
        kind: class of the message.
        values: its fields.

    Raises:
        InvalidQuery: a text is not valid Unicode, or a number is too large.
    """
    try:
        return kind(**values)
    except UnicodeEncodeError as error:
        raise InvalidQuery("texts of a look-up must be valid Unicode without lone surrogates") from error
    except ValueError as error:
        raise InvalidQuery(f"a number of the look-up is out of range: {error}") from error


def scope_from_proto(message: Any, reach: frozenset[str] | None) -> AccessScope:
    """Return the scope of a look-up's request.

    Args:
        message: the request.
        reach: the labels that the caller holds; None: everything may be seen.

    Raises:
        InvalidQuery: as `scope_fields`.
    """
    return AccessScope(**scope_fields(message), reach=reach)


def key_from_proto(message: Any, name: str) -> str:
    """Return the id or name in a field of a request.

    Raises:
        InvalidQuery: it is blank or too long.
    """
    key: str = getattr(message, name)
    if not key.strip():
        raise InvalidQuery(f"{name} must not be blank")
    if len(key) > _MAX_KEY_CHARACTERS:
        raise InvalidQuery(f"{name} must have at most {_MAX_KEY_CHARACTERS} characters, got {len(key)}")
    return key


def entity_to_proto(details: EntityDetails) -> pb.GetEntityResponse:
    """Return the message for an entity."""
    return _filled(pb.GetEntityResponse, _fill_entity, details)


def _fill_entity(message: pb.GetEntityResponse, details: EntityDetails) -> None:
    fill_entity(message.entity, details.entity)
    _fill_all(message.relations, fill_triple, details.relations)
    _fill_all(message.neighbours, fill_entity, details.neighbours)
    _fill_all(message.ancestors, fill_entity, details.ancestors)
    _fill_all(message.members, fill_entity, details.members)
    _fill_all(message.communities, fill_community, details.communities)
    _fill_all(message.sources, fill_source, details.sources)
    message.relation_count = details.relation_count
    message.source_count = details.source_count
    message.member_count = details.member_count


def entity_from_proto(message: pb.GetEntityResponse) -> EntityDetails:
    """Return the entity of a message."""
    return EntityDetails(
        entity=entities_from_proto([message.entity])[0],
        relations=triples_from_proto(message.relations),
        neighbours=entities_from_proto(message.neighbours),
        ancestors=entities_from_proto(message.ancestors),
        members=entities_from_proto(message.members),
        communities=communities_from_proto(message.communities),
        sources=sources_from_proto(message.sources),
        relation_count=message.relation_count,
        source_count=message.source_count,
        member_count=message.member_count,
    )


def path_to_proto(details: PathDetails) -> pb.FindPathResponse:
    """Return the message for a path."""
    return _filled(pb.FindPathResponse, _fill_path, details)


def _fill_path(message: pb.FindPathResponse, details: PathDetails) -> None:
    fill_path(message.path, details.path)
    _fill_all(message.entities, fill_entity, details.entities)
    _fill_all(message.triples, fill_triple, details.triples)


def path_from_proto(message: pb.FindPathResponse) -> PathDetails:
    """Return the path of a message."""
    return PathDetails(
        path=paths_from_proto([message.path])[0],
        entities=entities_from_proto(message.entities),
        triples=triples_from_proto(message.triples),
    )


def community_to_proto(details: CommunityDetails) -> pb.GetCommunityResponse:
    """Return the message for a community."""
    return _filled(pb.GetCommunityResponse, _fill_community, details)


def _fill_community(message: pb.GetCommunityResponse, details: CommunityDetails) -> None:
    fill_community(message.community, details.community)
    _fill_all(message.members, fill_entity, details.members)
    if details.parent is not None:
        message.parent.SetInParent()
        fill_community(message.parent, details.parent)
    _fill_all(message.children, fill_community, details.children)
    message.member_count = details.member_count


def community_from_proto(message: pb.GetCommunityResponse) -> CommunityDetails:
    """Return the community of a message."""
    return CommunityDetails(
        community=communities_from_proto([message.community])[0],
        members=entities_from_proto(message.members),
        parent=communities_from_proto([message.parent])[0] if message.HasField("parent") else None,
        children=communities_from_proto(message.children),
        member_count=message.member_count,
    )


def document_to_proto(part: DocumentPart) -> pb.GetDocumentResponse:
    """Return the message for a part of a document."""
    return _filled(pb.GetDocumentResponse, _fill_document, part)


def _fill_document(message: pb.GetDocumentResponse, part: DocumentPart) -> None:
    message.document_id = part.document_id
    message.title = part.title
    message.uri = part.uri
    message.text = text_to_proto(part.text)
    message.start = part.start
    message.total_chars = part.total_chars
    _fill_all(message.chunks, fill_source, part.chunks)
    for name, value in metadata_to_proto(part.metadata).items():
        message.metadata[name].CopyFrom(value)


def document_from_proto(message: pb.GetDocumentResponse) -> DocumentPart:
    """Return the part of a document in a message."""
    return DocumentPart(
        document_id=message.document_id,
        title=message.title,
        uri=message.uri,
        text=message.text,
        start=message.start,
        total_chars=message.total_chars,
        chunks=sources_from_proto(message.chunks),
        metadata=metadata_from_proto(message.metadata),
    )


def _fill_all(messages: Any, fill: Callable[[Any, Any], None], items: Sequence[Any]) -> None:
    for item in items:
        fill(messages.add(), item)


def _filled(kind: Callable[[], M], fill: Callable[[M, D], None], details: D) -> M:
    """Return a filled message; texts that protobuf cannot hold, as an imported snapshot may have, are made valid."""
    message = kind()
    try:
        fill(message, details)
    except UnicodeEncodeError:
        message = kind()
        fill(message, cleaned(details))
    return message
