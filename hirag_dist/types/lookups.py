"""Single items of an index and what surrounds them, as small frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from hirag_dist.types.results import CommunityItem, EntityItem, PathItem, SourceItem, TripleItem

DEFAULT_RELATIONS: Final = 20
DEFAULT_SOURCES: Final = 10
DEFAULT_MEMBERS: Final = 100
DEFAULT_CHARS: Final = 100_000


@dataclass(frozen=True, slots=True)
class AccessScope:
    """The part of an index that a look-up may read.

    Attributes:
        labels: that every document searched must carry; within `reach`.
        filter: expression over metadata that every document searched must meet; empty for none.
        as_of: date or time, ISO 8601, that no document searched is later than; empty for none.
        reach: the labels that the caller holds, which decide what may be seen; None: everything may.
    """

    labels: tuple[str, ...] = ()
    filter: str = ""
    as_of: str = ""
    reach: frozenset[str] | None = None


class ScopeOptions(TypedDict, total=False):
    """Fields of `AccessScope` as keyword arguments."""

    labels: tuple[str, ...]
    filter: str
    as_of: str
    reach: frozenset[str] | None


def as_scope(options: ScopeOptions) -> AccessScope:
    """Return the scope of keyword arguments.

    Raises:
        TypeError: an option has no such name.
    """
    for name in options:
        if name not in ScopeOptions.__annotations__:
            raise TypeError(f"a look-up has no option {name!r}; there are: {', '.join(ScopeOptions.__annotations__)}")
    return AccessScope(**options)


@dataclass(frozen=True, slots=True)
class EntityDetails:
    """An entity and its surroundings, as far as the caller may see them.

    Attributes:
        relations: the heaviest first; their `score` is 0.
        neighbours: the entities at the other ends of these relations, each once.
        ancestors: the summary entities above it, by layer (Eq. 10).
        members: the entities of the next lower layer that it summarises, most mentioned first; empty on layer 0.
        communities: that hold it, the deepest first; their `hits` and `score` are 0.
        sources: the chunks that mention it, or on a higher layer its members, in the order of the documents.
        relation_count, source_count, member_count: that the caller may see; the tuples may hold fewer.
        note: Which entity was taken for a name that is only a part of its name; empty otherwise.
    """

    entity: EntityItem
    relations: tuple[TripleItem, ...] = ()
    neighbours: tuple[EntityItem, ...] = ()
    ancestors: tuple[EntityItem, ...] = ()
    members: tuple[EntityItem, ...] = ()
    communities: tuple[CommunityItem, ...] = ()
    sources: tuple[SourceItem, ...] = ()
    relation_count: int = 0
    source_count: int = 0
    member_count: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class PathDetails:
    """A shortest path between two entities (Eq. 15-16).

    Attributes:
        path: without entities where the two are not connected.
        entities: on the path, in its order.
        triples: the relation between each two consecutive entities; their `score` is 0.
        note: As in `EntityDetails`.
    """

    path: PathItem
    entities: tuple[EntityItem, ...] = ()
    triples: tuple[TripleItem, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True)
class CommunityDetails:
    """A community with its report and members.

    Attributes:
        community: its title and report are empty where it has no report; `hits` and `score` are 0.
        members: most mentioned first.
        parent: on the next coarser level, without its report; None at the top.
        children: on the next finer level, without their reports.
        member_count: members that the caller may see; `members` may hold fewer.
    """

    community: CommunityItem
    members: tuple[EntityItem, ...] = ()
    parent: CommunityItem | None = None
    children: tuple[CommunityItem, ...] = ()
    member_count: int = 0


@dataclass(frozen=True, slots=True)
class DocumentPart:
    """A part of a document's text.

    Attributes:
        start: first character of `text` in the document.
        total_chars: of the whole text.
        chunks: that overlap the part, by position, without their texts.
        metadata: values of the document by field.
    """

    document_id: str
    title: str
    uri: str
    text: str
    start: int
    total_chars: int
    chunks: tuple[SourceItem, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
