"""Mentions to entities and relations: one per normalised name, one per pair of names (paper §4.1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from hirag_dist.core.ids import entity_id, relation_id
from hirag_dist.core.replies import Extraction
from hirag_dist.core.text import name_key, shorten
from hirag_dist.schemas import ENTITIES, RELATIONS

UNKNOWN = "unknown"
SEPARATOR = "\n"  # between descriptions that are still to be joined; each is one line
_KIND_MARK = "\x1f"
_BLOCK_ROWS = 20_000


def mentions_of(extraction: Extraction, chunk_id: str, split_homonyms: bool = False) -> tuple[list[Any], list[Any]]:
    """Return the rows of MENTIONS and RELATION_MENTIONS that one chunk's extraction gives.

    A relation's endpoint that the chunk does not describe becomes a mention of unknown type, marked as undescribed.

    Args:
        split_homonyms: keep equal names of different types apart.
    """
    keys: dict[str, str] = {}
    mentions: list[dict[str, Any]] = []
    for entity in extraction.entities:
        key = name_key(entity.name)
        own = f"{key}{_KIND_MARK}{entity.type}" if split_homonyms else key
        keys.setdefault(key, own)
        mentions.append(_mention(own, chunk_id, len(mentions), entity.name, entity.type, entity.description, True))
    relations: list[dict[str, Any]] = []
    for relation in extraction.relations:
        ends = []
        for name in (relation.source, relation.target):
            key = name_key(name)
            if key not in keys:
                keys[key] = f"{key}{_KIND_MARK}{UNKNOWN}" if split_homonyms else key
                mentions.append(_mention(keys[key], chunk_id, len(mentions), name, UNKNOWN, "", False))
            ends.append(keys[key])
        if ends[0] == ends[1]:
            continue
        source, target = sorted(ends)
        relations.append(
            {
                "source_key": source,
                "target_key": target,
                "chunk_id": chunk_id,
                "position": len(relations),
                "description": relation.description,
                "strength": relation.strength,
            }
        )
    return mentions, relations


def _mention(
    key: str, chunk_id: str, position: int, name: str, kind: str, description: str, described: bool
) -> dict[str, Any]:
    return {
        "name_key": key,
        "chunk_id": chunk_id,
        "position": position,
        "name": name,
        "type": kind,
        "description": description,
        "described": described,
    }


def merge_entities(mentions: pa.Table, layer: int = 0) -> pa.Table:
    """Return one ENTITIES row per name_key, sorted by id.

    The name is the most frequent surface form, the type the majority of the described mentions; ties go to the
    first in (chunk, position). The description holds the distinct descriptions, one a line, for
    `join_descriptions` or a model to make one of.

    Args:
        mentions: MENTIONS, in any order.
    """
    rows = mentions.sort_by([("name_key", "ascending"), ("chunk_id", "ascending"), ("position", "ascending")])
    merged = [_merged_entities(block, layer) for block in _blocks(rows, ("name_key",))]
    return pa.concat_tables([ENTITIES.empty_table(), *merged]).combine_chunks().sort_by("entity_id")


def _merged_entities(rows: pa.Table, layer: int) -> pa.Table:
    columns = [rows[name].to_pylist() for name in ("name_key", "chunk_id", "name", "type", "description", "described")]
    keys, chunks, names, kinds, texts, described = columns
    merged = []
    for first, last in _groups(keys):
        said = [at for at in range(first, last) if described[at]]
        merged.append(
            {
                "entity_id": entity_id(layer, keys[first]),
                "layer": layer,
                "name": _most_common(names[at] for at in (said or range(first, last))),
                "type": _most_common(kinds[at] for at in said) if said else UNKNOWN,
                "description": SEPARATOR.join(dict.fromkeys(texts[at] for at in said if texts[at])),
                "described": bool(said),
                "n_mentions": last - first,
                "chunk_ids": list(dict.fromkeys(chunks[first:last])),
            }
        )
    return pa.Table.from_pylist(merged, ENTITIES)


def merge_relations(mentions: pa.Table, max_description_chars: int = 1000) -> pa.Table:
    """Return one RELATIONS row of kind `extracted` per pair of names, strengths added up, sorted by id.

    Args:
        mentions: RELATION_MENTIONS, in any order.
        max_description_chars: descriptions are joined, strongest first, up to here.
    """
    order = [(name, "ascending") for name in ("source_key", "target_key", "chunk_id", "position")]
    rows = mentions.sort_by(order)
    merged = [_merged_relations(block, max_description_chars) for block in _blocks(rows, ("source_key", "target_key"))]
    return pa.concat_tables([RELATIONS.empty_table(), *merged]).combine_chunks().sort_by("relation_id")


def _merged_relations(rows: pa.Table, max_description_chars: int) -> pa.Table:
    sources, targets = rows["source_key"].to_pylist(), rows["target_key"].to_pylist()
    chunks, texts = rows["chunk_id"].to_pylist(), rows["description"].to_pylist()
    strengths = rows["strength"].to_pylist()
    merged = []
    for first, last in _groups(list(zip(sources, targets, strict=True))):
        ends = sorted([entity_id(0, sources[first]), entity_id(0, targets[first])])
        strongest = sorted(range(first, last), key=lambda at: -strengths[at])
        merged.append(
            {
                "relation_id": relation_id("extracted", *ends),
                "source_id": ends[0],
                "target_id": ends[1],
                "kind": "extracted",
                "layer": 0,
                "description": join_descriptions([texts[at] for at in strongest], max_description_chars),
                "weight": float(sum(strengths[first:last])),
                "chunk_ids": list(dict.fromkeys(chunks[first:last])),
            }
        )
    return pa.Table.from_pylist(merged, RELATIONS)


def _blocks(rows: pa.Table, keys: Sequence[str]) -> Iterator[pa.Table]:
    """Yield rows that are sorted by keys in runs, each of whole groups of equal keys.

    As Python objects rows take ten times the room that they have in a table: only a run's are at a time.
    """
    start = 0
    while start < rows.num_rows:
        stop = min(start + _BLOCK_ROWS, rows.num_rows)
        last = [rows[key][stop - 1] for key in keys]
        while stop < rows.num_rows and [rows[key][stop] for key in keys] == last:
            stop += 1
        yield rows.slice(start, stop - start)
        start = stop


def join_descriptions(descriptions: Sequence[str], max_chars: int) -> str:
    """Return distinct descriptions as one text, in order, while they fit; the first always goes in, shortened.

    >>> join_descriptions(["A dog.", "A dog.", "It barks."], 20)
    'A dog. It barks.'
    """
    kept: list[str] = []
    room = max_chars
    for text in dict.fromkeys(text for text in descriptions if text):
        if kept and len(text) + 1 > room:
            continue
        kept.append(shorten(text, room))
        room -= len(kept[-1]) + 1
    return " ".join(kept)


def same_name_relations(lower: pa.Table, upper: pa.Table) -> pa.Table:
    """Return a relation of weight 1 between entities of two layers that have the same normalised name.

    Args:
        lower: ENTITIES of one or more layers below.
        upper: ENTITIES of one layer.
    """
    by_key: dict[str, list[tuple[int, str]]] = {}
    for name, layer, own in zip(
        lower["name"].to_pylist(), lower["layer"].to_pylist(), lower["entity_id"].to_pylist(), strict=True
    ):
        by_key.setdefault(name_key(name), []).append((layer, own))
    rows = []
    for name, own in zip(upper["name"].to_pylist(), upper["entity_id"].to_pylist(), strict=True):
        below = by_key.get(name_key(name))
        if below:
            top = max(layer for layer, _ in below)
            for layer, other in below:
                if layer == top:
                    rows.append(
                        inter_layer_relation("same_name", other, own, layer, "The same name, a layer higher.", 1.0)
                    )
    return pa.Table.from_pylist(rows, RELATIONS).sort_by("relation_id")


def inter_layer_relation(
    kind: str, source_id: str, target_id: str, layer: int, description: str, weight: float
) -> dict[str, Any]:
    """Return one row of RELATIONS from an entity to one of the layer above."""
    return {
        "relation_id": relation_id(kind, source_id, target_id),
        "source_id": source_id,
        "target_id": target_id,
        "kind": kind,
        "layer": layer,
        "description": description,
        "weight": weight,
        "chunk_ids": [],
    }


def _groups(keys: Sequence[Any]) -> Iterator[tuple[int, int]]:
    first = 0
    for at in range(1, len(keys) + 1):
        if at == len(keys) or keys[at] != keys[first]:
            yield first, at
            first = at


def _most_common(values: Any) -> str:
    counts = Counter(values)  # keeps first-seen order, and most_common is stable
    return str(counts.most_common(1)[0][0])
