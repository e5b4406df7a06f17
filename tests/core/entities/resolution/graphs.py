"""Toy graphs for resolution: names and types in, scored pairs out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from hirag_dist.core.entities.resolution.names import Names
from hirag_dist.core.entities.resolution.scores import ScoredPair, scored_pairs
from hirag_dist.core.text.normalize import name_key
from hirag_dist.schemas import MENTIONS, RELATION_MENTIONS


def mention(name: str, kind: str, chunk: str, said: str = "", position: int = 0) -> dict[str, Any]:
    """Return a row of MENTIONS."""
    row = {"name_key": name_key(name), "chunk_id": chunk, "position": position, "name": name, "type": kind}
    return row | {"description": said, "described": bool(said)}


def statement(one: str, other: str, chunk: str = "c", position: int = 0) -> dict[str, Any]:
    """Return a row of RELATION_MENTIONS."""
    source, target = sorted((name_key(one), name_key(other)))
    row = {"source_key": source, "target_key": target, "chunk_id": chunk, "position": position}
    return row | {"description": "", "strength": 1.0}


def proposed(
    kinds: Mapping[str, str],
    chunks: Mapping[str, Sequence[str]] | None = None,
    said: Mapping[str, str] | None = None,
    related: Iterable[tuple[str, str]] = (),
) -> dict[tuple[str, str], ScoredPair]:
    """Return the pairs that are proposed, by their names, sorted.

    Args:
        kinds: name → type.
        chunks: name → chunks that mention it; each is alone in one unless they are given.
    """
    rows = []
    for name, kind in kinds.items():
        for chunk in (chunks or {}).get(name, (f"of {name}",)):
            rows.append(mention(name, kind, chunk, (said or {}).get(name, "")) | {"described": True})
    statements = pa.Table.from_pylist([statement(*pair) for pair in related], RELATION_MENTIONS)
    names = Names(pa.Table.from_pylist(rows, MENTIONS), statements)
    found = {}
    for pair in scored_pairs(names):
        one, other = sorted((names.rows[pair.left].text, names.rows[pair.right].text))
        found[one, other] = pair
    return found
