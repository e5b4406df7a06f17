"""Toy graphs for resolution: names and types in, the tables that it reads out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from hirag_dist.core.entities.resolution.candidate_pairs import CandidatePair, propose_pairs
from hirag_dist.core.entities.resolution.entity_features import EntityFeatures
from hirag_dist.core.text.ids import entity_id, relation_id
from hirag_dist.core.text.normalize import name_key
from hirag_dist.schemas import ENTITIES, RELATIONS


def entities(
    kinds: Mapping[str, str],
    chunks: Mapping[str, Sequence[str]] | None = None,
    said: Mapping[str, str] | None = None,
    mentions: Mapping[str, int] | None = None,
) -> pa.Table:
    """Return ENTITIES of layer 0: name → type, in the order given."""
    rows = [
        {
            "entity_id": entity_id(0, name_key(name)),
            "layer": 0,
            "name": name,
            "type": kind,
            "description": (said or {}).get(name, ""),
            "described": True,
            "n_mentions": (mentions or {}).get(name, 1),
            "chunk_ids": list((chunks or {}).get(name, ())),
        }
        for name, kind in kinds.items()
    ]
    return pa.Table.from_pylist(rows, ENTITIES)


def relations(pairs: Iterable[tuple[str, str]]) -> pa.Table:
    """Return RELATIONS between names."""
    rows = []
    for one, other in pairs:
        source, target = sorted((entity_id(0, name_key(one)), entity_id(0, name_key(other))))
        rows.append(
            {
                "relation_id": relation_id("extracted", source, target),
                "source_id": source,
                "target_id": target,
                "kind": "extracted",
                "layer": 0,
                "description": "",
                "weight": 1.0,
                "chunk_ids": [],
            }
        )
    return pa.Table.from_pylist(rows, RELATIONS)


def view_of(
    kinds: Mapping[str, str],
    chunks: Mapping[str, Sequence[str]] | None = None,
    said: Mapping[str, str] | None = None,
    mentions: Mapping[str, int] | None = None,
    related: Iterable[tuple[str, str]] = (),
) -> EntityFeatures:
    return EntityFeatures(entities(kinds, chunks, said, mentions), relations(related))


def proposed(view: EntityFeatures) -> dict[tuple[str, str], CandidatePair]:
    """Return the pairs that are proposed, by their names, sorted."""
    return {named(view, pair): pair for pair in propose_pairs(view)}


def named(view: EntityFeatures, pair: CandidatePair) -> tuple[str, str]:
    one, other = sorted((view.names[pair.left], view.names[pair.right]))
    return one, other
