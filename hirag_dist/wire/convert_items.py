"""Conversion of the items of results, both ways: entities, communities, paths, relations and sources.

The functions that fill a message take it as it stands in its reply: protobuf copies items that are made separately.
"""

from __future__ import annotations

from collections.abc import Iterable

from hirag_dist.types import CommunityItem, EntityItem, PathItem, SourceItem, TripleItem
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_places import add_places, places_from_proto
from hirag_dist.wire.convert_values import metadata_from_proto, metadata_to_proto


def fill_entity(message: pb.Entity, entity: EntityItem) -> None:
    """Fill a message in place."""
    message.entity_id = entity.entity_id
    message.name = entity.name
    message.type = entity.type
    message.description = entity.description
    message.layer = entity.layer
    if entity.score is not None:
        message.score = entity.score
    message.matched = entity.matched


def fill_community(message: pb.Community, community: CommunityItem) -> None:
    """Fill a message in place."""
    message.community_id = community.community_id
    message.level = community.level
    message.title = community.title
    message.report = community.report
    message.rating = community.rating
    message.hits = community.hits
    message.score = community.score
    message.report_missing = community.report_missing


def fill_path(message: pb.Path, path: PathItem) -> None:
    """Fill a message in place."""
    message.source_id = path.source_id
    message.target_id = path.target_id
    message.entity_ids.extend(path.entity_ids)
    message.entity_names.extend(path.entity_names)
    message.connected = path.connected


def fill_triple(message: pb.Triple, triple: TripleItem) -> None:
    """Fill a message in place."""
    message.relation_id = triple.relation_id
    message.source_id = triple.source_id
    message.target_id = triple.target_id
    message.source_name = triple.source_name
    message.target_name = triple.target_name
    message.kind = triple.kind
    message.description = triple.description
    message.weight = triple.weight
    message.score = triple.score


def fill_source(message: pb.Source, source: SourceItem, omit_text: bool = False) -> None:
    """Fill a message in place, without the text where asked."""
    message.chunk_id = source.chunk_id
    message.document_id = source.document_id
    message.title = source.title
    message.uri = source.uri
    message.start = source.start
    message.end = source.end
    message.text = "" if omit_text else source.text
    message.score = source.score
    for name, value in metadata_to_proto(source.metadata).items():
        message.metadata[name].CopyFrom(value)
    add_places(message.places.add, source.places)


def entities_from_proto(messages: Iterable[pb.Entity]) -> tuple[EntityItem, ...]:
    """Return the entities of messages."""
    return tuple(
        [
            EntityItem(
                one.entity_id,
                one.name,
                one.type,
                one.description,
                one.layer,
                one.score if one.HasField("score") else None,
                one.matched,
            )
            for one in messages
        ]
    )


def communities_from_proto(messages: Iterable[pb.Community]) -> tuple[CommunityItem, ...]:
    """Return the communities of messages."""
    return tuple(
        [
            CommunityItem(
                one.community_id,
                one.level,
                one.title,
                one.report,
                one.rating,
                one.hits,
                one.score,
                one.report_missing,
            )
            for one in messages
        ]
    )


def paths_from_proto(messages: Iterable[pb.Path]) -> tuple[PathItem, ...]:
    """Return the paths of messages."""
    return tuple(
        [
            PathItem(one.source_id, one.target_id, tuple(one.entity_ids[:]), tuple(one.entity_names[:]))
            for one in messages
        ]
    )


def triples_from_proto(messages: Iterable[pb.Triple]) -> tuple[TripleItem, ...]:
    """Return the relations of messages."""
    return tuple(
        [
            TripleItem(
                one.relation_id,
                one.source_id,
                one.target_id,
                one.source_name,
                one.target_name,
                one.kind,
                one.description,
                one.weight,
                one.score,
            )
            for one in messages
        ]
    )


def sources_from_proto(messages: Iterable[pb.Source]) -> tuple[SourceItem, ...]:
    """Return the sources of messages; a text that was left out is empty."""
    return tuple(
        [
            SourceItem(
                one.chunk_id,
                one.document_id,
                one.title,
                one.uri,
                one.start,
                one.end,
                one.text,
                one.score,
                metadata_from_proto(one.metadata),
                places_from_proto(one.places),
            )
            for one in messages
        ]
    )
