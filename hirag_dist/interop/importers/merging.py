"""Entities, relations and chunks of a folder → tables of layer 0, merged as `core.entities.merging` does."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import itemgetter
from typing import Any

import pyarrow as pa

from hirag_dist.core.entities.merging import SEPARATOR, UNKNOWN, join_descriptions
from hirag_dist.core.text.ids import chunk_id, content_id, document_id, entity_id, relation_id
from hirag_dist.core.text.normalize import clean_name, count_noun, name_key, one_line, shorten
from hirag_dist.interop.importers.model import SourceChunk, SourceDocument, SourceGraph, SourceRelation
from hirag_dist.schemas import CHUNKS, DOCUMENTS, ENTITIES, RELATIONS

_MIN_WEIGHT = 0.1  # as in core.replies: a path and a community need weights above zero
_USUAL_WEIGHT = 1.0
_DESCRIPTION_CHARS = 2000  # of a relation; entities' descriptions are shortened later, by a model


@dataclass(slots=True)
class _Entity:
    names: Counter[str] = field(default_factory=Counter)  # of rows that describe it
    other_names: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)
    descriptions: dict[str, None] = field(default_factory=dict)
    chunk_ids: dict[str, None] = field(default_factory=dict)
    n_mentions: int = 0
    described: bool = False


@dataclass(slots=True)
class _Relation:
    said: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)
    chunk_ids: dict[str, None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergedGraph:
    """The tables, and how many rows became one with another or were added for an endpoint."""

    entities: pa.Table
    relations: pa.Table
    n_merged: int
    n_merged_relations: int
    n_added: int


class _Names:
    """Normalised names and ids, each found once: most relations name what others have named."""

    def __init__(self) -> None:
        self.key = cache(name_key)
        self.id = cache(partial(entity_id, 0))


class _Chunks:
    """Chunk keys of the folder → chunk ids. Unknown keys are counted, for one line of account each.

    Where documents carry labels, unknown keys get ids that no chunk has, so that the index treats the access labels
    of their text as unknown.
    """

    def __init__(self, ids: Mapping[str, str], has_labels: bool) -> None:
        self._ids = ids
        self._has_labels = has_labels
        self.unknown: Counter[str] = Counter()

    def ids(self, keys: Iterable[str]) -> list[str]:
        keys = list(dict.fromkeys(keys))
        self.unknown.update(key for key in keys if key not in self._ids)
        if self._has_labels:
            return [self._ids.get(key) or content_id("unknown chunk", key) for key in keys]
        return [self._ids[key] for key in keys if key in self._ids]


def merge(source: SourceGraph, chunk_ids: Mapping[str, str]) -> MergedGraph:
    """Return entities and relations as tables; what could not be kept goes to `source.left_out`.

    Entities of equal `name_key` become one: mentions are added up, name and type are the most frequent, descriptions
    and chunks are put together. Relations have no direction and are one for a pair of entities, weights added up.
    An entity without a type whose only descriptions are those of its relations was never described: that is what
    nano-graphrag and its descendants store for an endpoint that no record names.

    Args:
        chunk_ids: the id of each chunk by its key in the folder.
    """
    chunks = _Chunks(chunk_ids, source.has_labels)
    names = _Names()
    entities: dict[str, _Entity] = {}
    n_rows = _merge_entities(source, chunks, names, entities)
    n_named = len(entities)
    relations: dict[tuple[str, str], _Relation] = {}
    n_kept = _merge_relations(source, chunks, names, entities, relations)
    for key, count in chunks.unknown.items():
        source.left_out.append((f"chunk {key}", f"not in the folder; named as source {count_noun(count, 'time')}"))
    return MergedGraph(
        _entity_table(entities, names),
        _relation_table(relations, source),
        n_rows - n_named,
        n_kept - len(relations),
        len(entities) - n_named,
    )


def _merge_entities(source: SourceGraph, chunks: _Chunks, names: _Names, entities: dict[str, _Entity]) -> int:
    of_relations: dict[str, set[str]] = {}
    for relation in source.relations:
        for name in (relation.source, relation.target):
            of_relations.setdefault(name, set()).update(relation.descriptions)
    n_rows = 0
    for row in source.entities:
        key = names.key(row.name)
        if not key:
            source.left_out.append((f"entity {row.name!r}", "its name holds no letter or digit"))
            continue
        n_rows += 1
        entity = entities.setdefault(key, _Entity())
        own = chunks.ids(row.chunk_keys)
        n_mentions = row.n_mentions or max(len(own), 1)
        described = row.described
        if described is None:
            described = bool(row.type) or not of_relations.get(row.name, set()).issuperset(row.descriptions)
        entity.n_mentions += n_mentions
        entity.chunk_ids |= dict.fromkeys(own)
        (entity.names if described else entity.other_names)[clean_name(row.name)] += n_mentions
        if described:
            entity.described = True
            entity.types[row.type] += n_mentions
            entity.descriptions |= dict.fromkeys(row.descriptions)
    return n_rows


def _merge_relations(
    source: SourceGraph,
    chunks: _Chunks,
    names: _Names,
    entities: dict[str, _Entity],
    relations: dict[tuple[str, str], _Relation],
) -> int:
    n_kept = 0
    for row in source.relations:
        what = f"relation {row.source!r} – {row.target!r}"
        ends = (names.key(row.source), names.key(row.target))
        if not all(ends):
            source.left_out.append((what, "the name of an end holds no letter or digit"))
            continue
        own = chunks.ids(row.chunk_keys)
        for key, name in zip(ends, (row.source, row.target), strict=True):
            if key not in entities:
                added = _Entity(n_mentions=max(len(own), 1), chunk_ids=dict.fromkeys(own))
                added.other_names[clean_name(name)] += 1
                entities[key] = added
        if ends[0] == ends[1]:
            source.left_out.append((what, "it joins an entity with itself"))
            continue
        n_kept += 1
        low, high = sorted((names.id(ends[0]), names.id(ends[1])))
        relation = relations.setdefault((low, high), _Relation())
        relation.said.append((_weight(row, what, source), row.descriptions))
        relation.chunk_ids |= dict.fromkeys(own)
    return n_kept


def _weight(row: SourceRelation, what: str, source: SourceGraph) -> float:
    weight = _USUAL_WEIGHT if row.weight is None else row.weight
    if not math.isfinite(weight):
        source.left_out.append((f"weight of {what}", f"it is {weight}; {_USUAL_WEIGHT} is used"))
        return _USUAL_WEIGHT
    if weight < _MIN_WEIGHT:
        source.left_out.append((f"weight of {what}", f"it is {weight:g}, below {_MIN_WEIGHT}, which is used"))
        return _MIN_WEIGHT
    return weight


def _entity_table(entities: Mapping[str, _Entity], names: _Names) -> pa.Table:
    merged = sorted(((names.id(key), entity) for key, entity in entities.items()), key=itemgetter(0))
    columns = {
        "entity_id": [own for own, _ in merged],
        "layer": [0] * len(merged),
        "name": [_most_common(entity.names or entity.other_names) for _, entity in merged],
        "type": [
            _most_common(Counter({kind: n for kind, n in entity.types.items() if kind})) or UNKNOWN
            for _, entity in merged
        ],
        "description": [SEPARATOR.join(entity.descriptions) for _, entity in merged],
        "described": [entity.described for _, entity in merged],
        "n_mentions": [entity.n_mentions for _, entity in merged],
        "chunk_ids": [list(entity.chunk_ids) for _, entity in merged],
    }
    return pa.table(columns, schema=ENTITIES)


def _relation_table(relations: Mapping[tuple[str, str], _Relation], source: SourceGraph) -> pa.Table:
    columns: dict[str, list[Any]] = {name: [] for name in RELATIONS.names}
    for (low, high), relation in relations.items():
        strongest = sorted(relation.said, key=lambda item: -item[0])
        texts = list(dict.fromkeys(text for _, descriptions in strongest for text in descriptions))
        whole = " ".join(texts)
        joined = whole if len(texts) == 1 else join_descriptions(texts, _DESCRIPTION_CHARS)
        own = relation_id("extracted", low, high)
        if joined != whole:
            reason = f"{len(whole) - len(joined)} of {len(whole)} characters: more than {_DESCRIPTION_CHARS} together"
            source.left_out.append((f"descriptions of relation {own}", reason))
        weight = float(sum(weight for weight, _ in relation.said))
        row = (own, low, high, "extracted", 0, joined, weight, list(relation.chunk_ids))
        for values, value in zip(columns.values(), row, strict=True):
            values.append(value)
    return pa.table(columns, schema=RELATIONS).sort_by("relation_id")


def _most_common(counts: Counter[str]) -> str:
    return counts.most_common(1)[0][0] if counts else ""  # keeps first-seen order, and most_common is stable


_TITLE_CHARS = 80
_METADATA_LINE = re.compile(r"[A-Za-z_][\w -]*: [^\n]*\n")


@dataclass(frozen=True, slots=True)
class ChunkPlacement:
    """The tables, the id of each of the folder's chunks by its key there, and the properties of documents by id."""

    documents: pa.Table
    chunks: pa.Table
    chunk_ids: Mapping[str, str]
    properties: Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    exact: bool


def place(source: SourceGraph, count_tokens: Callable[[str], int]) -> ChunkPlacement:
    """Return documents and chunks as tables; what could not be kept as it was goes to `source.left_out`.

    Equal texts with the same labels are one document. A chunk's text is looked for in its document, from the start of
    the chunk before it on, then from the beginning; where it is not found the whole document is its span and the chunk
    keeps its text.
    A chunk of a document that is not there becomes a document of its own; where documents carry labels it stays without
    one, as does a chunk of several documents with different labels of which none holds its text: its access labels are
    unknown, and only callers without a label restriction reach it. Texts that the folder does not hold are empty: such
    chunks keep their span, so that a source can be cited by its place; their vector is zero.
    """
    documents: dict[str, dict[str, Any]] = {}
    properties: dict[str, Mapping[str, Any]] = {}
    by_key: dict[str, list[dict[str, Any]]] = {}  # several only where the folder names them alike
    for document in source.documents:
        row = _document_row(document)
        first = documents.setdefault(row["document_id"], row)
        if document.properties:
            properties.setdefault(row["document_id"], document.properties)
        if first is not row:
            first["source_ids"] = list(dict.fromkeys([*first["source_ids"], *row["source_ids"]]))
            source.left_out.append((f"document {document.key}", f"its text is that of document {first['uri']}"))
        by_key.setdefault(document.key, []).append(first)
    placed: dict[str, dict[str, Any]] = {}
    ids: dict[str, str] = {}
    last: dict[str, int] = {}  # where in each document the chunk before began
    for chunk in source.chunks:
        chunk, home = _at_home(chunk, by_key, documents, source)
        span = _span_of(chunk, home, last.get(home["document_id"], -1))
        row = _chunk_row(chunk, home, span, count_tokens)
        if span.exact:
            last[home["document_id"]] = span.start
        else:
            reason = f"its text is not found in document {home['uri']}: the whole document stands for its place"
            source.left_out.append((f"place of chunk {chunk.key}", reason))
        ids[chunk.key] = row["chunk_id"]
        if placed.setdefault(row["chunk_id"], row) is not row:
            source.left_out.append((f"chunk {chunk.key}", f"it is the same text of {home['uri']} as another chunk"))
    _note_missing_texts(source)
    rows = [documents[own] for own in sorted(documents)]
    return ChunkPlacement(pa.Table.from_pylist(rows, DOCUMENTS), _chunk_table(placed), ids, properties)


def _document_row(document: SourceDocument) -> dict[str, Any]:
    text = document.text or ""
    own = document_id(text, document.labels) if text else content_id("document without text", document.key)
    first_line = next((line for line in text.splitlines() if line.strip()), "")
    title = one_line(document.title) or shorten(one_line(first_line), _TITLE_CHARS) or document.key
    return {
        "document_id": own,
        "uri": document.uri or document.key,
        "record": document.record,
        "title": title,
        "source_ids": list(document.source_ids or (document.key,)),
        "labels": sorted(set(document.labels)),
        "n_chars": len(text),
        "text": text,
    }


def _at_home(
    chunk: SourceChunk,
    by_key: dict[str, list[dict[str, Any]]],
    documents: dict[str, dict[str, Any]],
    source: SourceGraph,
) -> tuple[SourceChunk, dict[str, Any]]:
    """Return the document that a chunk is from: the first that holds its text where it names several."""
    homes = [home for key in chunk.document_keys for home in by_key.get(key, ())]
    sure = next((home for home in homes if chunk.text and chunk.text in home["text"]), None)
    missing = [key for key in chunk.document_keys if key not in by_key]
    differ = any(home["labels"] != homes[0]["labels"] for home in homes)
    if sure is None and homes and not (source.has_labels and (missing or differ)):
        sure = homes[0]
    if sure is not None:
        return chunk, sure
    what, named = f"document of chunk {chunk.key}", ", ".join(chunk.document_keys) or "not named"
    row = _document_row(SourceDocument(chunk.key, chunk.text))
    chunk = replace(chunk, start=None, end=None)
    if not source.has_labels:
        source.left_out.append((what, f"it is not in the folder ({named}): the chunk is a document of its own"))
        return chunk, documents.setdefault(row["document_id"], row)
    why = "they carry different labels" if homes and not missing else "it is not in the folder"
    source.left_out.append((what, f"{why} ({named}): the chunk is in reach of no caller with labels"))
    return chunk, row | {"document_id": content_id("unknown document of chunk", chunk.key)}


def _span_of(chunk: SourceChunk, home: Mapping[str, Any], before: int) -> _Span:
    text: str = home["text"]
    if chunk.start is not None and chunk.end is not None and 0 <= chunk.start <= chunk.end <= home["n_chars"]:
        given = _Span(chunk.start, chunk.end, True)
        if not text or chunk.text is None or text[chunk.start : chunk.end] == chunk.text:
            return given
    if chunk.text:
        # a token cut within a character leaves U+FFFD at the edge of a chunk
        forms = (form for text in _without_metadata(chunk.text) for form in (text, text.strip("\ufffd")))
        for wanted in dict.fromkeys(forms):
            at = text.find(wanted, before + 1) if wanted else -1
            if at < 0 and wanted:
                at = text.find(wanted)
            if at >= 0:
                return _Span(at, at + len(wanted), True)
    return _Span(0, home["n_chars"], False)


def _without_metadata(text: str) -> Iterator[str]:
    r"""Yield a chunk, then without the lines `name: value` before it, which GraphRAG puts there (`prepend_metadata`).

    >>> list(_without_metadata("title: tides.txt.\nThe tide is high."))
    ['title: tides.txt.\nThe tide is high.', 'The tide is high.']
    """
    yield text
    while line := _METADATA_LINE.match(text):
        text = text[line.end() :]
        yield text


def _chunk_row(
    chunk: SourceChunk, home: Mapping[str, Any], span: _Span, count_tokens: Callable[[str], int]
) -> dict[str, Any]:
    document = home["document_id"]
    if span.exact:
        text = home["text"][span.start : span.end] or chunk.text or ""
        own = chunk_id(document, span.start, span.end, text)
    else:
        text = chunk.text or ""
        own = content_id("chunk", document, str(span.start), str(span.end), text or chunk.key)
    return {
        "chunk_id": own,
        "document_id": document,
        "position": 0,
        "start": span.start,
        "end": span.end,
        "n_tokens": count_tokens(text) if text else chunk.n_tokens,
        "text": text,
    }


def _chunk_table(placed: Mapping[str, dict[str, Any]]) -> pa.Table:
    rows = sorted(placed.values(), key=lambda row: (row["document_id"], row["start"], row["end"], row["chunk_id"]))
    for at, row in enumerate(rows):
        first = at == 0 or rows[at - 1]["document_id"] != row["document_id"]
        row["position"] = 0 if first else rows[at - 1]["position"] + 1
    return pa.Table.from_pylist(rows, CHUNKS)


def _note_missing_texts(source: SourceGraph) -> None:
    for sort, missing in (
        ("document", sum(not document.text for document in source.documents)),
        ("chunk", sum(not chunk.text for chunk in source.chunks)),
    ):
        if missing:
            source.left_out.append((f"text of {count_noun(missing, sort)}", "the folder does not hold it; it is empty"))
