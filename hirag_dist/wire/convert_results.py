"""Conversion of results between protobuf messages and the package's records, both ways: retrieval, answer, index info.

Strings that protobuf cannot hold (lone surrogates) become U+FFFD in a server's replies. Pure functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from hirag_dist.types import (
    Answer,
    Citation,
    ClaimItem,
    CommunityItem,
    EntityItem,
    IndexInfo,
    MapWork,
    PathItem,
    Place,
    Retrieval,
    SourceItem,
    TripleItem,
)
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_places import add_places, places_from_proto
from hirag_dist.wire.convert_query import MODE_NAMES, MODES
from hirag_dist.wire.convert_values import (
    facet_from_proto,
    facet_to_proto,
    metadata_from_proto,
    metadata_to_proto,
    scalar_to_proto,
    valid_text,
    value_from_proto,
)

LEVELS: Mapping[str, Any] = {
    name.removeprefix("LEVEL_").lower(): number for name, number in pb.Level.items() if number != pb.LEVEL_UNSPECIFIED
}

_LEVEL_NAMES: Mapping[int, str] = {number: name for name, number in LEVELS.items()}


def level_to_proto(level: str) -> pb.Level:
    """Return the number of local, global, bridge, sources or done.

    Raises:
        KeyError: any other name.
    """
    number: pb.Level = LEVELS[level]
    return number


def level_from_proto(level: int) -> str:
    """Return a level's name; "level 9" for one that a later server sends."""
    return _LEVEL_NAMES.get(level, f"level {level}")


def retrieval_to_proto(
    retrieval: Retrieval,
    *,
    omit_context: bool = False,
    omit_source_text: bool = False,
    into: pb.Retrieval | None = None,
) -> pb.Retrieval:
    """Return the message for a retrieval, without the rendered context or the chunks' text where asked.

    Args:
        retrieval: the result of a query.
        omit_context: leave the context out.
        omit_source_text: leave the chunks' text out.
        into: the empty message to fill, as a field of a reply; a message put into another is copied.
    """
    message = pb.Retrieval() if into is None else into
    message.SetInParent()
    try:
        _fill(message, retrieval, omit_context, omit_source_text)
    except UnicodeEncodeError:  # a snapshot that was imported may hold anything
        message.Clear()
        message.SetInParent()
        _fill(message, _cleaned(retrieval), omit_context, omit_source_text)
    return message


def _fill(message: pb.Retrieval, retrieval: Retrieval, omit_context: bool, omit_source_text: bool) -> None:
    """Fill a message in place: protobuf copies items that are made separately and then added."""
    message.question = retrieval.question
    message.mode = MODES[retrieval.mode]
    message.snapshot_id = retrieval.snapshot_id
    for entities, add in ((retrieval.local, message.local.add), (retrieval.key_entities, message.key_entities.add)):
        for entity in entities:
            add(
                entity_id=entity.entity_id,
                name=entity.name,
                type=entity.type,
                description=entity.description,
                layer=entity.layer,
                score=entity.score,
            )
    for community in retrieval.communities:
        message.communities.add(
            community_id=community.community_id,
            level=community.level,
            title=community.title,
            report=community.report,
            rating=community.rating,
            hits=community.hits,
            score=community.score,
        )
    for path in retrieval.paths:
        message.paths.add(
            source_id=path.source_id,
            target_id=path.target_id,
            entity_ids=path.entity_ids,
            entity_names=path.entity_names,
            connected=path.connected,
        )
    for triple in retrieval.triples:
        message.triples.add(
            relation_id=triple.relation_id,
            source_id=triple.source_id,
            target_id=triple.target_id,
            source_name=triple.source_name,
            target_name=triple.target_name,
            kind=triple.kind,
            description=triple.description,
            weight=triple.weight,
            score=triple.score,
        )
    for source in retrieval.sources:
        added = message.sources.add(
            chunk_id=source.chunk_id,
            document_id=source.document_id,
            title=source.title,
            uri=source.uri,
            start=source.start,
            end=source.end,
            text="" if omit_source_text else source.text,
            score=source.score,
            metadata=metadata_to_proto(source.metadata),
        )
        add_places(added.places.add, source.places)
    if not omit_context:
        message.context = retrieval.context
    message.context_tokens = retrieval.context_tokens
    message.context_refs.update(retrieval.context_refs)
    message.timings_ms.update(retrieval.timings_ms)
    message.partial.extend(retrieval.partial)
    message.note = retrieval.note
    for claim in retrieval.claims:
        message.claims.add(**asdict(claim))
    if retrieval.map_work is not None:
        message.map_work.CopyFrom(pb.MapWork(**asdict(retrieval.map_work)))


def retrieval_from_proto(message: pb.Retrieval) -> Retrieval:
    """Return the retrieval of a message; texts that were left out are empty."""
    return Retrieval(
        question=message.question,
        mode=MODE_NAMES.get(message.mode, f"mode {message.mode}"),
        snapshot_id=message.snapshot_id,
        local=_entities(message.local),
        communities=tuple(
            [
                CommunityItem(one.community_id, one.level, one.title, one.report, one.rating, one.hits, one.score)
                for one in message.communities
            ]
        ),
        key_entities=_entities(message.key_entities),
        paths=tuple(
            [
                PathItem(one.source_id, one.target_id, tuple(one.entity_ids), tuple(one.entity_names))
                for one in message.paths
            ]
        ),
        triples=tuple(
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
                for one in message.triples
            ]
        ),
        sources=tuple(
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
                for one in message.sources
            ]
        ),
        context=message.context,
        context_tokens=message.context_tokens,
        context_refs=dict(message.context_refs),
        timings_ms=dict(message.timings_ms),
        partial=tuple(message.partial),
        note=message.note,
        claims=tuple(
            [ClaimItem(**{each.name: getattr(one, each.name) for each in fields(ClaimItem)}) for one in message.claims]
        ),
        map_work=_map_work(message.map_work) if message.HasField("map_work") else None,
    )


def _map_work(message: pb.MapWork) -> MapWork:
    return MapWork(**{each.name: getattr(message, each.name) for each in fields(MapWork)})


def _entities(messages: Iterable[pb.Entity]) -> tuple[EntityItem, ...]:
    return tuple(
        [
            EntityItem(
                one.entity_id,
                one.name,
                one.type,
                one.description,
                one.layer,
                one.score if one.HasField("score") else None,
            )
            for one in messages
        ]
    )


def answer_to_proto(answer: Answer, retrieval: pb.Retrieval | None = None) -> pb.FinalAnswer:
    """Return the message that ends an answer.

    Args:
        answer: the engine's answer.
        retrieval: of the answer, if it is not the one that the stream has already sent.
    """
    return pb.FinalAnswer(
        text=valid_text(answer.text),
        citations=[_citation_to_proto(_cleaned(item)) for item in answer.citations],
        dropped_citations=answer.dropped_citations,
        model=valid_text(answer.model),
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        retrieval=retrieval,
    )


def _citation_to_proto(item: Citation) -> pb.Citation:
    message = pb.Citation(
        ref=item.ref, kind=item.kind, id=item.id, title=item.title, document_id=item.document_id, uri=item.uri
    )
    add_places(message.places.add, item.places)
    return message


def answer_from_proto(message: pb.FinalAnswer, retrieval: Retrieval) -> Answer:
    """Return the answer of a message; `retrieval` comes from the stream, unless the message has another."""
    return Answer(
        text=message.text,
        citations=tuple(
            Citation(
                item.ref, item.kind, item.id, item.title, item.document_id, item.uri, places_from_proto(item.places)
            )
            for item in message.citations
        ),
        dropped_citations=message.dropped_citations,
        retrieval=retrieval_from_proto(message.retrieval) if message.HasField("retrieval") else retrieval,
        model=message.model,
        input_tokens=message.input_tokens,
        output_tokens=message.output_tokens,
    )


def text_to_proto(text: str) -> str:
    """Return a text without the characters that protobuf cannot hold."""
    return valid_text(text)


def info_to_proto(info: IndexInfo) -> pb.IndexInfo:
    """Return the message for a snapshot's description.

    Raises:
        TypeError: a layer holds a value that is no number, text, boolean or list.
    """
    return pb.IndexInfo(
        snapshot_id=info.snapshot_id,
        created_at=info.created_at,
        complete=info.complete,
        counts=dict(info.counts),
        layers=[
            pb.Layer(values={name: scalar_to_proto(value) for name, value in layer.items()}) for layer in info.layers
        ],
        communities_by_level=dict(info.communities_by_level),
        embedder=info.embedder,
        dim=info.dim,
        facets=map(facet_to_proto, info.facets),
        as_of_field=info.as_of_field,
    )


def info_from_proto(message: pb.IndexInfo) -> IndexInfo:
    """Return the description of a snapshot."""
    return IndexInfo(
        snapshot_id=message.snapshot_id,
        created_at=message.created_at,
        complete=message.complete,
        counts=dict(message.counts),
        layers=tuple(
            {name: value_from_proto(layer.values[name]) for name in sorted(layer.values)} for layer in message.layers
        ),
        communities_by_level=dict(message.communities_by_level),
        embedder=message.embedder,
        dim=message.dim,
        facets=tuple(map(facet_from_proto, message.facets)),
        as_of_field=message.as_of_field,
    )


def _cleaned(value: Any) -> Any:
    """Return the same record with every text made valid."""
    match value:
        case str():
            return valid_text(value)
        case Mapping():
            return {_cleaned(key): _cleaned(item) for key, item in value.items()}
        case Sequence():
            return tuple(map(_cleaned, value))
        case (
            Retrieval()
            | ClaimItem()
            | EntityItem()
            | CommunityItem()
            | PathItem()
            | TripleItem()
            | SourceItem()
            | Citation()
            | Place()
        ):
            return type(value)(**{name: _cleaned(getattr(value, name)) for name in value.__slots__})
    return value
