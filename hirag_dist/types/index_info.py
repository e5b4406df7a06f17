"""Descriptions of an index and of its metadata fields, as small frozen records."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal


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


_CONTENT = ("documents", "chunks", "entities", "relations", "communities", "reports")  # tables with a row a thing


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

    @property
    def content(self) -> dict[str, int]:
        """Numbers of documents, chunks, entities and so on, without tables whose rows are links or records."""
        return {name: self.counts[name] for name in _CONTENT if self.counts.get(name)}

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in self.content.items()) or "empty"
        partial = "" if self.complete else ", incomplete"
        layers = f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        return f"<IndexInfo {self.snapshot_id} of {self.created_at}: {counts}, {layers}{partial}>"


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its interval; all NaN where there was nothing to estimate from."""

    value: float
    low: float
    high: float


NOTHING = Interval(float("nan"), float("nan"), float("nan"))


FieldType = Literal["string", "number", "date", "bool"]
MetadataValue = str | float | bool | tuple[str | float | bool, ...]
RESERVED_WORDS: Final = frozenset(
    ("and", "or", "not", "in", "has", "any", "all", "is", "missing", "starts", "with", "true", "false")
)
"""Words of filter expressions, in lower case."""
MAX_FIELDS: Final = 64
_NAME = re.compile(r"[^\W\d]\w{0,63}")


@dataclass(frozen=True, slots=True)
class MetadataField:
    """A declared field.

    Attributes:
        list: whether a document may have several values.
    """

    name: str
    type: FieldType
    list: bool = False

    def __str__(self) -> str:
        return f"{self.name} ({'list of ' if self.list else ''}{self.type})"


def check_field_name(name: str) -> str:
    """Return the name of a field.

    Raises:
        ValueError: it cannot be one.
    """
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a field: write letters, digits and _, up to 64, no digit first")
    if name.lower() in RESERVED_WORDS:
        raise ValueError(f"{name!r} is a word of filter expressions; choose another name for the field")
    return name
