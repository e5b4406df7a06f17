"""Records of a retrieval as documents: a text, an id, a score and metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from hirag_dist.types import CommunityItem, EntityItem, PathItem, Retrieval, SourceItem, TripleItem

Level = Literal["local", "global", "bridge", "sources"]
LEVELS: Final[tuple[Level, ...]] = ("local", "global", "bridge", "sources")


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """A record of a retrieval.

    Attributes:
        id: of the chunk, entity or community; of a path, the ids of its ends.
        text: of the chunk; else name and description, title and report, or the relations on the path.
        score: similarity to the question, of paths and chunks their rank score; None where the record has none.
        metadata: plain values by name: `level`, `snapshot_id`, and the fields of the record.
    """

    id: str
    text: str
    score: float | None
    metadata: Mapping[str, Any]


def documents_of(retrieval: Retrieval, levels: Sequence[Level], k: int | None) -> list[RetrievedDocument]:
    """Return the documents of the levels, in their order and the best first.

    Args:
        retrieval: of a question.
        levels: local (entities), global (community reports), bridge (paths with their relations), sources (chunks).
        k: documents of each level at most; None for all.
    """
    made: list[RetrievedDocument] = []
    shared: dict[str, Any] = {"snapshot_id": retrieval.snapshot_id, "mode": retrieval.mode}
    if retrieval.partial:
        shared["partial"] = list(retrieval.partial)
    for level in levels:
        for document in list(_DOCUMENTS[level](retrieval))[:k]:
            metadata = {**document.metadata, "level": level, "score": document.score, **shared}
            made.append(RetrievedDocument(document.id, document.text, document.score, metadata))
    return made


def check_levels(levels: Iterable[str]) -> None:
    """Raise ValueError for a level that does not exist, or if there is none."""
    names = list(levels)
    if not names or any(name not in LEVELS for name in names):
        raise ValueError(f"levels must be some of {', '.join(LEVELS)}, got {', '.join(map(repr, names)) or 'none'}")


def _entity(item: EntityItem) -> RetrievedDocument:
    metadata = {"entity_id": item.entity_id, "title": item.name, "type": item.type, "layer": item.layer}
    if item.matched:
        metadata["matched"] = item.matched
    text = f"{item.name} ({item.type}): {item.description}"
    return RetrievedDocument(item.entity_id, text, item.score, metadata)


def _community(item: CommunityItem) -> RetrievedDocument:
    metadata = {
        "community_id": item.community_id,
        "title": item.title,
        "community_level": item.level,
        "rating": item.rating,
        "hits": item.hits,
    }
    return RetrievedDocument(item.community_id, f"{item.title}\n\n{item.report}", item.score, metadata)


def _path(item: PathItem, triples: Iterable[TripleItem]) -> RetrievedDocument:
    """Return a path; `triples` are all of the retrieval, of which those between neighbours on the path are kept."""
    steps = {frozenset(pair) for pair in zip(item.entity_ids, item.entity_ids[1:], strict=False)}
    kept = [triple for triple in triples if frozenset((triple.source_id, triple.target_id)) in steps]
    lines = [f"{triple.source_name} – {triple.target_name}: {triple.description}" for triple in kept]
    metadata = {
        "source_id": item.source_id,
        "target_id": item.target_id,
        "title": f"{item.entity_names[0]} → {item.entity_names[-1]}",
        "entity_ids": list(item.entity_ids),
        "entity_names": list(item.entity_names),
        "relation_ids": [triple.relation_id for triple in kept],
    }
    score = max((triple.score for triple in kept), default=None)
    name = f"{item.source_id}-{item.target_id}"
    return RetrievedDocument(name, "\n".join([" → ".join(item.entity_names), *lines]), score, metadata)


def _source(item: SourceItem) -> RetrievedDocument:
    metadata: dict[str, Any] = {
        name: list(value) if isinstance(value, tuple) else value for name, value in item.metadata.items()
    }
    metadata |= {  # these names win over fields of the document
        "chunk_id": item.chunk_id,
        "document_id": item.document_id,
        "title": item.title,
        "uri": item.uri,
        "start": item.start,
        "end": item.end,
    }
    if item.similarity is not None:
        metadata["similarity"] = item.similarity
    if item.places:
        metadata["places"] = [_plain(asdict(place)) for place in item.places]
        metadata["place"] = item.places[0].display
        if item.places[0].page:
            metadata["page"] = item.places[0].page
    return RetrievedDocument(item.chunk_id, item.text, item.score, metadata)


def _plain(place: dict[str, Any]) -> dict[str, Any]:
    """Return a position without the fields that say nothing."""
    kept = {name: value for name, value in place.items() if value or name in ("start", "end")}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in kept.items()}


_DOCUMENTS: Mapping[Level, Callable[[Retrieval], Iterable[RetrievedDocument]]] = {
    "local": lambda found: map(_entity, found.local),
    "global": lambda found: map(_community, found.communities),
    "bridge": lambda found: (_path(path, found.triples) for path in found.paths if path.connected),
    "sources": lambda found: map(_source, found.sources),
}
