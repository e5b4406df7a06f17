"""Conversion of results between protobuf messages and the package's records, both ways: retrieval, answer, index info.

Strings that protobuf cannot hold (lone surrogates) become U+FFFD in a server's replies. Pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from hirag_dist.types import (
    Answer,
    Citation,
    ClaimItem,
    IndexEntry,
    IndexInfo,
    MapWork,
    Retrieval,
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
from hirag_dist.wire.convert_places import add_places, places_from_proto
from hirag_dist.wire.convert_query import MODE_NAMES, MODES
from hirag_dist.wire.convert_values import (
    facet_from_proto,
    facet_to_proto,
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
        _fill(message, cleaned(retrieval), omit_context, omit_source_text)
    return message


def _fill(message: pb.Retrieval, retrieval: Retrieval, omit_context: bool, omit_source_text: bool) -> None:
    """Fill a message in place: protobuf copies items that are made separately and then added."""
    message.question = retrieval.question
    message.mode = MODES[retrieval.mode]
    message.snapshot_id = retrieval.snapshot_id
    for entity in retrieval.local:
        fill_entity(message.local.add(), entity)
    for entity in retrieval.key_entities:
        fill_entity(message.key_entities.add(), entity)
    for community in retrieval.communities:
        fill_community(message.communities.add(), community)
    for path in retrieval.paths:
        fill_path(message.paths.add(), path)
    for triple in retrieval.triples:
        fill_triple(message.triples.add(), triple)
    for source in retrieval.sources:
        fill_source(message.sources.add(), source, omit_source_text)
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
        mode=_mode_name(message.mode),
        snapshot_id=message.snapshot_id,
        local=entities_from_proto(message.local),
        communities=communities_from_proto(message.communities),
        key_entities=entities_from_proto(message.key_entities),
        paths=paths_from_proto(message.paths),
        triples=triples_from_proto(message.triples),
        sources=sources_from_proto(message.sources),
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


def _mode_name(mode: int) -> str:
    return MODE_NAMES.get(mode, f"mode {mode}")


def _map_work(message: pb.MapWork) -> MapWork:
    return MapWork(**{each.name: getattr(message, each.name) for each in fields(MapWork)})


def answer_to_proto(answer: Answer, retrieval: pb.Retrieval | None = None) -> pb.FinalAnswer:
    """Return the message that ends an answer.

    Args:
        answer: the engine's answer.
        retrieval: of the answer, if it is not the one that the stream has already sent.
    """
    return pb.FinalAnswer(
        text=valid_text(answer.text),
        citations=[_citation_to_proto(cleaned(item)) for item in answer.citations],
        dropped_citations=answer.dropped_citations,
        model=valid_text(answer.model),
        input_tokens=answer.input_tokens,
        output_tokens=answer.output_tokens,
        retrieval=retrieval,
        finish_reason=answer.finish_reason,
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
        finish_reason=message.finish_reason or "stop",  # empty of an earlier service
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
        counts=dict(sorted(message.counts.items())),
        layers=tuple(
            {name: value_from_proto(layer.values[name]) for name in sorted(layer.values)} for layer in message.layers
        ),
        communities_by_level=dict(message.communities_by_level),
        embedder=message.embedder,
        dim=message.dim,
        facets=tuple(map(facet_from_proto, message.facets)),
        as_of_field=message.as_of_field,
    )


def cleaned(value: Any) -> Any:
    """Return the same record with every text made valid."""
    match value:
        case str():
            return valid_text(value)
        case Mapping():
            return {cleaned(key): cleaned(item) for key, item in value.items()}
        case Sequence():
            return tuple(map(cleaned, value))
    if is_dataclass(value) and not isinstance(value, type):
        return type(value)(**{each.name: cleaned(getattr(value, each.name)) for each in fields(value)})
    return value


def entry_from_proto(message: pb.IndexEntry) -> IndexEntry:
    """Return an entry of the list of indexes."""
    return IndexEntry(message.name, message.title, message.default)
