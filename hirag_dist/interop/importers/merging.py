"""Entities and relations of a folder → tables of layer 0, merged by name as `core.entities.merging` does."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from operator import itemgetter
from typing import Any

import pyarrow as pa

from hirag_dist.core.entities.merging import SEPARATOR, UNKNOWN, join_descriptions
from hirag_dist.core.text.ids import content_id, entity_id, relation_id
from hirag_dist.core.text.normalize import clean_name, count_noun, name_key
from hirag_dist.interop.importers.model import SourceGraph, SourceRelation
from hirag_dist.schemas import ENTITIES, RELATIONS

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
        source: the records of a folder.
        chunk_ids: the id of each chunk by its key in the folder.
    """
    chunks = _Chunks(chunk_ids, source.has_labels)
    names = _Names()
    entities: dict[str, _Entity] = {}
    n_rows = _merge_entities(source, chunks, names, entities)
    n_merged = n_rows - len(entities)
    n_named = len(entities)
    relations: dict[tuple[str, str], _Relation] = {}
    n_kept = _merge_relations(source, chunks, names, entities, relations)
    for key, count in chunks.unknown.items():
        source.left_out.append((f"chunk {key}", f"not in the folder; named as source {count_noun(count, 'time')}"))
    return MergedGraph(
        _entity_table(entities, names),
        _relation_table(relations, source),
        n_merged,
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
