"""Merging of mentions: one entity per normalised name, one relation per pair of names (paper §4.1).

Tables are merged by arrays; `entity_texts` and `relation_description` do the same for a few mentions of one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.groupby import DistinctValues, Numbers, distinct, lists, most_common, numbered, ranked
from hirag_dist.core.prompts.reply_parsing import ExtractionReply
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import name_key, shorten
from hirag_dist.schemas import ENTITIES, RELATIONS
from hirag_dist.types import IntVector

UNKNOWN = "unknown"
CHARS_PER_TOKEN = 4  # about; what a limit of tokens is in characters
SEPARATOR = "\n"  # between descriptions that are still to be joined; each is one line


@dataclass(frozen=True, slots=True)
class DescriptionBound:
    """Limit on the distinct descriptions of one entity or relation: their count and their total characters."""

    count: int
    chars: int


def mentions_of(extraction: ExtractionReply, chunk_id: str) -> tuple[list[Any], list[Any]]:
    """Return the rows of MENTIONS and RELATION_MENTIONS that one chunk's extraction gives.

    A relation's endpoint that the chunk does not describe becomes a mention of unknown type, marked as undescribed.
    """
    keys: set[str] = set()
    mentions: list[dict[str, Any]] = []
    for entity in extraction.entities:
        key = name_key(entity.name)
        keys.add(key)
        mentions.append(_mention(key, chunk_id, len(mentions), entity.name, entity.type, entity.description, True))
    relations: list[dict[str, Any]] = []
    for relation in extraction.relations:
        ends = []
        for name in (relation.source, relation.target):
            key = name_key(name)
            if key not in keys:
                keys.add(key)
                mentions.append(_mention(key, chunk_id, len(mentions), name, UNKNOWN, "", False))
            ends.append(key)
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


def merge_entities(mentions: pa.Table) -> pa.Table:
    """Return one ENTITIES row of layer 0 per name_key, sorted by id.

    The name is the most frequent surface form, the type the majority of the described mentions; ties go to the
    first in (chunk, position). The description holds the distinct descriptions, one a line, for
    `join_descriptions` or a model to make one of; the chunks are in order.

    Args:
        mentions: MENTIONS, in any order.
    """
    key_of, keys = numbered(mentions["name_key"])
    return merge_groups(mentions, key_of, [entity_id(0, key) for key in keys.to_pylist()])


def merge_groups(mentions: pa.Table, group_of: Numbers, ids: list[str]) -> pa.Table:
    """Merge entity mentions that are grouped already; as `merge_entities`.

    Args:
        mentions: MENTIONS, in any order; `name_key` is not read.
        group_of: (n_mentions,) the number of each mention's group.
        ids: of the groups, by number.
    """
    group_of, ids = _by_id(group_of, ids)
    n_groups = len(ids)
    chunk_of, chunks = ranked(mentions["chunk_id"])
    order = np.lexsort((mentions["position"].to_numpy(), chunk_of))
    group = group_of[order]
    described = mentions["described"].to_numpy()[order]
    says_of = np.bincount(group[described], minlength=n_groups) > 0
    voters = described | ~says_of[group]
    has_text = described & _filled(mentions["description"])[order]
    text_of, texts = numbered(mentions["description"])
    said = distinct(group[has_text], text_of[order[has_text]])
    seen_in = distinct(group, chunk_of[order])
    columns = {
        "entity_id": pa.array(ids, pa.string()),
        "layer": pa.array(np.zeros(n_groups, np.int32)),
        "name": _voted(mentions["name"], group[voters], order[voters], n_groups),
        "type": pc.fill_null(_voted(mentions["type"], group[described], order[described], n_groups), UNKNOWN),
        "description": pc.binary_join(lists(said.offsets(n_groups), texts.take(said.value)), SEPARATOR),
        "described": pa.array(says_of),
        "n_mentions": pa.array(np.bincount(group, minlength=n_groups), pa.int32()),
        "chunk_ids": lists(seen_in.offsets(n_groups), chunks.take(seen_in.value), ENTITIES.field("chunk_ids").type),
    }
    return pa.table(columns, schema=ENTITIES)


def merge_relations(mentions: pa.Table, max_description_chars: int = 1000) -> pa.Table:
    """Return one RELATIONS row of kind `extracted` per pair of names, strengths added up, sorted by id.

    Args:
        mentions: RELATION_MENTIONS, in any order; strengths are added in that of (chunk, position).
        max_description_chars: descriptions are joined, strongest first, up to here.
    """
    pair_of, heads = _numbered_rows(mentions, ("source_key", "target_key"))
    sides = []
    for column in ("source_key", "target_key"):
        number_of, names = numbered(mentions[column])
        entity_ids = [entity_id(0, name) for name in names.to_pylist()]
        sides.append([entity_ids[number] for number in number_of[heads].tolist()])
    ends = [(low, high) if low < high else (high, low) for low, high in zip(*sides, strict=True)]
    ids = [relation_id("extracted", *pair) for pair in ends]
    end_of = dict(zip(ids, ends, strict=True))
    group_of, ids = _by_id(pair_of, ids)
    n_groups = len(ids)
    chunk_of, chunks = ranked(mentions["chunk_id"])
    order = np.lexsort((mentions["position"].to_numpy(), chunk_of))
    group = group_of[order]
    strengths = mentions["strength"].to_numpy()[order]
    seen_in = distinct(group, chunk_of[order])
    strongest = order[np.argsort(-strengths, kind="stable")]
    strongest = strongest[_filled(mentions["description"])[strongest]]
    text_of, texts = numbered(mentions["description"])
    described_by = distinct(group_of[strongest], text_of[strongest])
    said = texts.take(described_by.value).to_pylist()
    descriptions = [
        join_descriptions(said[first:last], max_description_chars)
        for first, last in pairwise(described_by.offsets(n_groups).tolist())
    ]
    weights = np.bincount(group, strengths, minlength=n_groups).astype(np.float64)  # of no mention: integers
    columns = {
        "relation_id": pa.array(ids, pa.string()),
        "source_id": pa.array([end_of[own][0] for own in ids], pa.string()),
        "target_id": pa.array([end_of[own][1] for own in ids], pa.string()),
        "kind": pa.repeat(pa.scalar("extracted"), n_groups),
        "layer": pa.array(np.zeros(n_groups, np.int32)),
        "description": pa.array(descriptions, pa.string()),
        "weight": pa.array(weights),
        "chunk_ids": lists(seen_in.offsets(n_groups), chunks.take(seen_in.value), RELATIONS.field("chunk_ids").type),
    }
    return pa.table(columns, schema=RELATIONS)


def bound_descriptions(
    mentions: pa.Table, keys: Sequence[str], bound: DescriptionBound, spare: int = 0
) -> tuple[pa.Table, pa.Table]:
    """Return mentions with the descriptions emptied that are too many for one entity or relation.

    Of its distinct descriptions those stay that merging puts first (of relations the strongest, else by chunk and
    position) up to the bound, each where it comes first; one stays always. Of those whose descriptions, repeats
    counted, are within the bound every row stays as it is.

    Args:
        mentions: MENTIONS or RELATION_MENTIONS, in any order.
        keys: the columns that name the described entity or relation.
        spare: number kept beyond the bound. Mentions of many tasks, each bounded with one to spare, are bounded again
            with the same result as all mentions at once.

    Returns:
        The mentions, and the keys of those with more distinct descriptions than the bound allows, each once.
    """
    group_of, heads = _numbered_rows(mentions, keys)
    lengths = pc.utf8_length(mentions["description"]).to_numpy()
    counts = np.bincount(group_of)
    over = (counts > bound.count) | (np.bincount(group_of, lengths) > bound.chars)
    if not over.any():
        return mentions, mentions.select(keys).slice(0, 0)
    few = np.flatnonzero(over[group_of])
    wanted = ("chunk_id", "position", "description", "described", "strength")
    some = mentions.select([name for name in wanted if name in mentions.column_names]).take(few)
    chunk_of, _ = ranked(some["chunk_id"])
    by = (some["position"].to_numpy(), chunk_of)
    order = np.lexsort((*by, -some["strength"].to_numpy()) if "strength" in some.column_names else by)
    says = _filled(some["description"])
    if "described" in some.column_names:
        says &= some["described"].to_numpy()
    order = order[says[order]]
    text_of, _ = numbered(some["description"])
    found = distinct(group_of[few][order], text_of[order])
    kept, cut = _within(found, lengths[few][order][found.first], bound, spare)
    stays = np.ones(mentions.num_rows, bool)
    stays[few] = False
    stays[few[order[found.first[kept]]]] = True
    at = mentions.schema.get_field_index("description")
    texts = pc.if_else(pa.array(stays), mentions["description"], "")
    return mentions.set_column(at, mentions.schema.field(at), texts), mentions.select(keys).take(heads[cut])


def _voted(column: pa.ChunkedArray, groups: Numbers, rows: IntVector, n_groups: int) -> pa.Array:
    """Return the value that each group's rows have most often, null for a group without rows."""
    number_of, values = numbered(column)
    winners = most_common(groups, number_of[rows], n_groups)
    return values.take(pa.array(winners, mask=winners < 0))


def _within(
    found: DistinctValues, lengths: IntVector, bound: DescriptionBound, spare: int
) -> tuple[NDArray[np.bool_], IntVector]:
    """Return a mask of the descriptions within the bound, and the groups that exceed it."""
    offsets = found.offsets(int(found.group.max(initial=-1)) + 1)
    begins = offsets[found.group]
    rank = np.arange(len(begins)) - begins
    sums = np.concatenate([[0], np.cumsum(lengths)])
    chars = sums[1:] - sums[begins]
    fits = (rank == 0) | ((rank < bound.count) & (chars <= bound.chars))  # a prefix of each group
    n_fit = np.bincount(found.group, fits)[found.group]
    return rank < n_fit + spare, np.unique(found.group[~fits])


def _by_id(numbers: Numbers, ids: list[str]) -> tuple[Numbers, list[str]]:
    """Return numbers by the rank of what they stand for, and the ids sorted."""
    order = np.array(sorted(range(len(ids)), key=ids.__getitem__), np.int64)
    ranks = np.empty(len(ids), np.int32)
    ranks[order] = np.arange(len(ids))
    return ranks[numbers], [ids[at] for at in order]


def _numbered_rows(table: pa.Table, columns: Sequence[str]) -> tuple[Numbers, IntVector]:
    """Return the number of each row's values in some columns, and a row of each number."""
    numbers, _ = numbered(table[columns[0]])
    for column in columns[1:]:
        more, values = numbered(table[column])
        numbers = np.unique(numbers.astype(np.int64) * max(len(values), 1) + more, return_inverse=True)[1]
    heads = np.zeros(int(numbers.max(initial=-1)) + 1, np.int64)
    heads[numbers] = np.arange(len(numbers))
    return numbers, heads


def _filled(texts: pa.ChunkedArray) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = pc.not_equal(pc.binary_length(texts), 0).to_numpy()
    return filled


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


class EntityMention(NamedTuple):
    """A mention of an entity, as a row of MENTIONS."""

    position: int
    described: bool
    chunk_id: str
    name: str
    type: str
    description: str


class RelationMention(NamedTuple):
    """A mention of a relation, as a row of RELATION_MENTIONS."""

    position: int
    strength: float
    chunk_id: str
    description: str


def entity_texts(mentions: Iterable[EntityMention]) -> tuple[str, str, str]:
    """Return (name, type, description) of an entity with at least one mention, as `merge_groups` does."""
    ordered = sorted(mentions, key=lambda one: (one.chunk_id, one.position))
    described = [one for one in ordered if one.described]
    name = _most_common(one.name for one in described or ordered)
    kind = _most_common(one.type for one in described) if described else UNKNOWN
    descriptions = dict.fromkeys(one.description for one in described if one.description)
    return name, kind, SEPARATOR.join(descriptions)


def relation_description(mentions: Iterable[RelationMention], max_chars: int) -> str:
    """Return the description of a relation, as `merge_relations` does.

    Args:
        max_chars: descriptions are joined, strongest first, up to here.
    """
    ordered = sorted(mentions, key=lambda one: (-one.strength, one.chunk_id, one.position))
    return join_descriptions([one.description for one in ordered], max_chars)


def _most_common(values: Iterable[str]) -> str:
    """Return the most frequent value, among equals the first one."""
    return Counter(values).most_common(1)[0][0]
