"""Texts of one entity or relation from its mentions: as `merging` has them, without tables, for a few mentions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from hirag_dist.core.entities.merging import SEPARATOR, UNKNOWN, join_descriptions


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
    """Return (name, type, description) of an entity with at least one mention, as `merging.merge_groups` does."""
    ordered = sorted(mentions, key=lambda one: (one.chunk_id, one.position))
    described = [one for one in ordered if one.described]
    name = _most_common(one.name for one in described or ordered)
    kind = _most_common(one.type for one in described) if described else UNKNOWN
    descriptions = dict.fromkeys(one.description for one in described if one.description)
    return name, kind, SEPARATOR.join(descriptions)


def relation_description(mentions: Iterable[RelationMention], max_chars: int) -> str:
    """Return the description of a relation, as `merging.merge_relations` does.

    Args:
        max_chars: descriptions are joined, strongest first, up to here.
    """
    ordered = sorted(mentions, key=lambda one: (-one.strength, one.chunk_id, one.position))
    return join_descriptions([one.description for one in ordered], max_chars)


def _most_common(values: Iterable[str]) -> str:
    """Return the most frequent value, among equals the first one."""
    return Counter(values).most_common(1)[0][0]
