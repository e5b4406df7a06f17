"""Settings of a retriever, its calls of a service or of an open index, and the documents that it returns."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from typing import Any, Final, Literal

from hirag_dist.client import HiragClient
from hirag_dist.client.common import client_options
from hirag_dist.types import CommunityItem, EntityItem, PathItem, Query, Retrieval, SourceItem, TripleItem


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrieverSettings:
    """Settings of a retriever. None and empty values take the default of the service or of the open index.

    Attributes:
        k: documents of each level at most; None for all that the retrieval has.
        levels: local (entities), global (community reports), bridge (paths), sources (chunks), in this order.
        mode, top_n, top_m, top_c, community_level, context_tokens, labels, filter, as_of, vector, reach: as in `Query`;
            `reach` with an open index only, since a service decides by the token.
        index: name of the index in a service with several.
        token: bearer token of the calls, instead of the client's.
        timeout_s: seconds for a call.

    Raises:
        ValueError: `k` is below 1, or a level does not exist.
    """

    k: int | None = None
    levels: tuple[Level, ...] = ("sources",)
    mode: str | None = None
    top_n: int | None = None
    top_m: int | None = None
    top_c: int | None = None
    community_level: str | None = None
    context_tokens: int | None = None
    labels: tuple[str, ...] = ()
    filter: str = ""
    as_of: str = ""
    vector: Any = field(default=None, repr=False)
    reach: frozenset[str] | None = None
    index: str = ""
    token: str | None = field(default=None, repr=False)
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not self.levels or any(name not in LEVELS for name in self.levels):
            given = ", ".join(map(repr, self.levels)) or "none"
            raise ValueError(f"levels must be some of {', '.join(LEVELS)}, got {given}")
        if self.k is not None and self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    def merged(self, overrides: Mapping[str, Any]) -> RetrieverSettings:
        """Return the settings with some replaced.

        Raises:
            TypeError: a setting does not exist.
            ValueError: a value is out of bounds.
        """
        for name in overrides:
            if name not in SETTINGS:
                near = get_close_matches(name, SETTINGS, n=1, cutoff=0.6)
                hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(SETTINGS)}"
                raise TypeError(f"a retriever has no setting {name!r}; {hint}")
        given = dict(overrides)
        for name in _TUPLES & given.keys():
            given[name] = (given[name],) if isinstance(given[name], str) else tuple(given[name])
        return replace(self, **given)

    def query(self, question: str) -> Query:
        """Return the query for a question."""
        return Query(question, **{name: getattr(self, name) for name in _OF_QUERY})

    def arguments(self, connection: RetrievalSource) -> dict[str, Any]:
        """Return the keyword arguments of a call.

        Raises:
            ValueError: a setting of a service is given for an open index, or the other way round.
        """
        if not connection.is_service:
            for name in ("index", "token"):
                if getattr(self, name):
                    raise ValueError(f"{name} is a setting for a service; the source is an open index")
            return {"timeout_s": self.timeout_s}
        if self.reach is not None:
            raise ValueError("reach is a setting for an open index; a service decides by the caller's token")
        given: dict[str, Any] = {"omit_context": True, "omit_source_text": "sources" not in self.levels}
        return given | {name: value for name in ("index", "token", "timeout_s") if (value := getattr(self, name))}

    def documents(self, retrieval: Retrieval) -> list[RetrievedDocument]:
        """Return the documents of a retrieval, level by level in the order of `levels`, the best of each first."""
        shared: dict[str, Any] = {"snapshot_id": retrieval.snapshot_id, "mode": retrieval.mode}
        if retrieval.partial:
            shared["partial"] = list(retrieval.partial)
        return [
            replace(found, metadata={**found.metadata, "level": level, "score": found.score, **shared})
            for level in self.levels
            for found in list(_DOCUMENTS[level](retrieval))[: self.k]
        ]


SETTINGS: tuple[str, ...] = tuple(one.name for one in fields(RetrieverSettings))
_TUPLES = {"levels", "labels"}
_OF_QUERY = tuple(one.name for one in fields(Query) if one.name in SETTINGS)


Level = Literal["local", "global", "bridge", "sources"]
LEVELS: Final[tuple[Level, ...]] = ("local", "global", "bridge", "sources")


@dataclass(frozen=True, slots=True)
class RetrievedDocument:
    """A record of a retrieval.

    Attributes:
        id: Id of the chunk, entity or community; of a path, the ids of its ends.
        text: Text of the chunk; else name and description, title and report, or the relations on the path.
        score: similarity to the question, of paths and chunks their rank score; None where the record has none.
        metadata: plain values by name: `level`, `snapshot_id`, and the fields of the record.
    """

    id: str
    text: str
    score: float | None
    metadata: Mapping[str, Any]


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


_SOURCES = "HOST:PORT of a service, a HiragClient, or an open index (hirag_dist.open_index)"


class RetrievalSource:
    """A source of retrievals.

    An address gets a client when it is first used. `close` closes what this object opened; a given client or index
    stays open. Calls may come from several threads.

    Args:
        source: HOST:PORT, a client, or an open index (`hirag_dist.open_index`).
        options: fields of `ClientOptions`, for an address.

    Raises:
        ConfigError: the options contradict each other, or a file cannot be read.
        TypeError: the source is something else, or has options although it is no address.
    """

    def __init__(self, source: Any, options: Mapping[str, Any]) -> None:
        if isinstance(source, str):
            client_options(source, options)  # checks them
        elif not callable(getattr(source, "retrieve", None)) or inspect.iscoroutinefunction(source.retrieve):
            raise TypeError(f"source must be {_SOURCES}, got {type(source).__name__}")
        elif options:
            raise TypeError(f"{next(iter(options))} is an option of an address; the source is an open connection")
        self._source = source
        self._options = dict(options)
        self._lock = threading.Lock()
        self._client: HiragClient | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the address and its options; they open connections of their own."""
        return RetrievalSource, (self._source, self._options)

    @property
    def is_service(self) -> bool:
        """True if calls take the keyword arguments of a client."""
        return isinstance(self._source, str | HiragClient)

    def retrieve(self, query: Query, arguments: Mapping[str, Any]) -> Retrieval:
        """Return the retrieval of a query; `arguments` are those of the source's own method."""
        found: Retrieval = self._opened().retrieve(query, **arguments)
        return found

    def close(self) -> None:
        """Close the client of an address, if there is one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _opened(self) -> Any:
        if not isinstance(self._source, str):
            return self._source
        with self._lock:
            if self._client is None:
                self._client = HiragClient(self._source, **self._options)
            return self._client
