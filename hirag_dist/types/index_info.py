"""Descriptions of an index and of its metadata fields, as small frozen records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hirag_dist.types.notebook import index_html


@dataclass(frozen=True, slots=True)
class Facet:
    """A metadata field of the documents of an index, with counts of the documents that the caller may see.

    Attributes:
        type: string, number, date or bool.
        list: whether a document may have several values.
        documents: those that have a value.
        min, max: of a date, as ISO 8601 text, or number; None for the other types, and where no document has a value.
        distinct: number of values of a string or bool; 0 for the other types.
        values: (value, documents) of a string or bool, the most frequent first, at most 20.
    """

    name: str
    type: str
    list: bool = False
    documents: int = 0
    min: str | float | None = None
    max: str | float | None = None
    distinct: int = 0
    values: tuple[tuple[str | bool, int], ...] = ()


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """An index of a service.

    Attributes:
        name: as requests give it; empty where the service has one index and no catalogue.
        title: for people; empty if none is configured.
        default: whether a request that names no index goes to it.
    """

    name: str
    title: str = ""
    default: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class IndexInfo:
    """Description of a snapshot.

    Attributes:
        facets: the metadata fields of documents.
        as_of_field: the metadata field that `Query.as_of` compares with; "" if there is none.
        fallback: why the current snapshot cannot be read, if this one is used in its place; "" otherwise, and from a
            service.
        main_entities: names of the extracted entities that most chunks mention, at most 6; empty unless a caller asked.
        example_titles: titles of some of the documents, at most 12; empty unless a caller asked.
    """

    snapshot_id: str
    created_at: str
    complete: bool
    counts: Mapping[str, int]
    layers: tuple[Mapping[str, Any], ...]
    communities_by_level: Mapping[int, int]
    embedder: str
    dim: int
    fallback: str = ""
    facets: tuple[Facet, ...] = ()
    as_of_field: str = ""
    main_entities: tuple[str, ...] = ()
    example_titles: tuple[str, ...] = ()

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.counts.items() if count) or "empty"
        partial = "" if self.complete else ", incomplete"
        layers = f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        return f"<IndexInfo {self.snapshot_id} of {self.created_at}: {counts}, {layers}{partial}>"

    def _repr_html_(self) -> str:
        return index_html("", self)
