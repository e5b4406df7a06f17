"""Checks of the arrays and texts of a snapshot, once when they are mapped.

Compiled code reads arrays without looking at bounds: a row that is too large, or an `indptr` that falls, would end the
process, and with it every other index of a service. Hashes do not help, since a manifest can vouch for such an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 22  # values that are compared at a time


@dataclass(frozen=True, slots=True)
class _Rule:
    """What an array must be. Names of sizes are those of tables, other arrays and files of texts."""

    dtype: str  # `numpy.dtype.str` without the byte order
    rows: str = ""  # size that it has a row for each of; "" for any number
    columns: int = 0  # of a matrix; 0 for a vector, −1 for any number
    below: str = ""  # size that bounds its values, which are rows; "" for values without bounds
    missing: bool = False  # whether −1 is a value too, for a row that is not there
    extra: int = 0  # how much larger than `below` values may be
    points_to: str = ""  # for an indptr, the array that it divides
    sorted: bool = False  # whether its values ascend


def _lists(owners: str, indptr: str, values: str, below: str, *, missing: bool = False) -> dict[str, _Rule]:
    """Return the rules of CSR lists of rows."""
    return {
        indptr: _Rule("i8", owners, points_to=values),
        values: _Rule("i4", below=below, missing=missing),
    }


def _patterns(what: str, rows: str) -> dict[str, _Rule]:
    indptr, sets = f"{what}_pattern_indptr", f"{what}_pattern_sets"
    return {
        f"{what}_patterns": _Rule("i4", rows, below=f"{what}_pattern_divisible"),
        f"{what}_pattern_divisible": _Rule("b1"),
        indptr: _Rule("i8", f"{what}_pattern_divisible", points_to=sets),
        sets: _Rule("i4", below="label_sets.arrow", extra=1),
    }


def _mentions(rows: str, of: str, each: str, number: str, dtype: str) -> dict[str, _Rule]:
    positions = f"{each}_positions"
    return {
        f"{rows}_rows": _Rule("i4", below=of, missing=True, sorted=True),
        f"{rows}_indptr": _Rule("i8", f"{rows}_rows", points_to=positions),
        f"{each}_sets": _Rule("i4", positions, below="label_sets.arrow", extra=1),
        f"{each}_chunks": _Rule("i4", positions, below="chunks", missing=True),
        positions: _Rule("i4"),
        number: _Rule(dtype, positions),
    }


def _lexical(part: str) -> dict[str, _Rule]:
    """Return the rules of an inverted index; of a part of one by the prefix of its files."""
    lengths = f"{part}chunk_terms"
    return {
        f"{part}term_keys": _Rule("u8", sorted=True),
        **_lists(f"{part}term_keys", f"{part}term_indptr", f"{part}term_chunks", lengths),
        f"{part}term_counts": _Rule("u1", f"{part}term_chunks"),
        lengths: _Rule("i4", "" if part else "chunks"),
    }


_SERVING_RULES: Final = {  # of the serving arrays that every snapshot has
    "entity_layers": _Rule("i4", "entities", below="entities", sorted=True),
    "entity_renderings": _Rule("i4", "entities"),
    "entity_components": _Rule("i4", "entities", below="entities"),
    **_lists("entities", "entity_chunks_indptr", "entity_chunks", "chunks"),
    "entity_name_keys": _Rule("u8", sorted=True),
    "entity_name_rows": _Rule("i4", "entity_name_keys", below="entities"),
    "relation_ends": _Rule("i4", "relations", 2, below="entities", missing=True),
    "relation_renderings": _Rule("i4", "relations"),
    "relation_weights": _Rule("f8", "relations"),
    **_lists("relations", "relation_chunks_indptr", "relation_chunks", "chunks"),
    "parallel_of": _Rule("i4", below="relations", sorted=True),
    **_lists("parallel_of", "parallel_indptr", "parallel_rows", "relations"),
    **_lists("chunks", "chunk_entities_indptr", "chunk_entities", "entities"),
    "chunk_documents": _Rule("i4", "chunks", below="documents", missing=True),
    "chunk_spans": _Rule("i8", "chunks", 2),
    "chunk_renderings": _Rule("i4", "chunks"),
    "community_levels": _Rule("i4", "communities", below="communities"),
    "community_ratings": _Rule("f8", "communities"),
    "community_order": _Rule("i8", "communities", below="communities"),
    "community_reports": _Rule("i4", "communities", below="reports", missing=True),
    "community_renderings": _Rule("i4", "communities"),
    **_lists("communities", "community_indptr", "community_members", "entities"),
    **_lists("entities", "entity_communities_indptr", "entity_communities", "communities"),
}
SERVING_ARRAYS: Final = tuple(_SERVING_RULES)
_RULES: Final = _SERVING_RULES | {
    "graph/indptr": _Rule("i8", "entities", points_to="graph/indices"),
    "graph/indices": _Rule("i4", below="entities"),
    "graph/weights": _Rule("f4", "graph/indices"),
    "graph/relation_rows": _Rule("i4", "graph/indices", below="relations"),
    "vectors/entities": _Rule("f4", "entities", -1),
    "vectors/chunks": _Rule("f4", "chunks", -1),
    "vectors/stored_entities": _Rule("f4", columns=-1),
    "vectors/changed_entities": _Rule("f4", columns=-1),
    "vectors/stored_chunks": _Rule("f4", columns=-1),
    "vectors/changed_chunks": _Rule("f4", columns=-1),
    "vectors/parts": _Rule("f4", "", -1),
    "vectors/part_entities": _Rule("i4", "vectors/parts", below="entities", sorted=True),
    "vectors/part_sets": _Rule("i4", "vectors/parts", below="label_sets.arrow", extra=1),
    "entity_slots": _Rule("i4", "entities"),
    "relation_slots": _Rule("i4", "relations"),
    "chunk_slots": _Rule("i4", "chunks"),
    "report_slots": _Rule("i4", "reports"),
    "alias_keys": _Rule("u8", sorted=True),
    "alias_rows": _Rule("i4", "alias_keys", below="entities"),
    **_lexical(""),
    **_lexical("stored_"),
    **_lexical("changed_"),
    "term_frequencies": _Rule("i8", "stored_term_keys"),
    "claim_chunks": _Rule("i4", "claims", below="chunks", missing=True),
    "claim_ends": _Rule("i4", "claims", 2, below="entities", missing=True),
    **_lists("entities", "entity_claims_indptr", "entity_claims", "claims"),
    "document_records": _Rule("i4", "documents"),
    "place_indptr": _Rule("i8", "documents", points_to="place_spans"),
    "place_spans": _Rule("u4", columns=2),
    "place_pages": _Rule("i4", "place_spans"),
    "place_rows": _Rule("i4", "place_spans"),
    "place_boxes_indptr": _Rule("i8", "place_spans", points_to="place_boxes"),
    "place_boxes": _Rule("u2", columns=4),
    "place_texts": _Rule("i4", "place_spans", below="places.arrow"),
    "chunk_sets": _Rule("i4", "chunks", below="label_sets.arrow", extra=1),
    **_patterns("entity", "entities"),
    **_patterns("relation", "relations"),
    **_patterns("community", "communities"),
    **_mentions("mentioned", "entities", "mention", "mention_described", "b1"),
    **_mentions("stated", "relations", "statement", "statement_strengths", "f8"),
    "entity_provenance": _Rule("u1", "entities"),
    "relation_provenance": _Rule("u1", "relations"),
    "summary_indptr": _Rule("i8", points_to="summary_members"),
    "summary_members": _Rule("i4", below="entities", missing=True),
}
_FIELD_INDPTR: Final = re.compile(r"metadata_(\d+)_indptr")
TEXT_ROWS: Final = {  # file of texts → the size that it has a row for each of
    "entities.arrow": "entities",
    "relations.arrow": "relations",
    "chunks.arrow": "chunks",
    "documents.arrow": "documents",
    "communities.arrow": "communities",
    "reports.arrow": "reports",
    "claims.arrow": "claims",
    "document_metadata.arrow": "documents",
    "entity_mentions.arrow": "mention_positions",
    "statements.arrow": "statement_positions",
}


def array_fault(name: str, array: NDArray[Any], size: Callable[[str], int]) -> str:
    """Return what is wrong with an array of a snapshot, "" for nothing.

    Args:
        name: path of a file without ending, as `graph/indptr`; of serving files the name alone.
        size: returns the rows of a table, of an array or of a file of texts, by its name.
    """
    field = _FIELD_INDPTR.fullmatch(name)
    rule = _Rule("i8", "documents", points_to=f"metadata_{field[1]}_values") if field else _RULES.get(name)
    if rule is None:
        return ""
    n_dims = 2 if rule.columns else 1
    if array.dtype != np.dtype(f"<{rule.dtype}"):
        return f"expected numbers of type {rule.dtype}, got {array.dtype.str}"
    is_shaped = array.ndim == n_dims and (rule.columns <= 0 or array.shape[1] == rule.columns)
    if not is_shaped or not array.flags.c_contiguous:
        return f"expected {'a matrix' if rule.columns else 'a vector'}, got the shape {array.shape}"
    n_rows = size(rule.rows) + bool(rule.points_to) if rule.rows else max(len(array), bool(rule.points_to))
    if len(array) != n_rows:
        return f"expected {n_rows} rows, got {len(array)}"
    if rule.points_to:
        end = size(rule.points_to)
        if array[0] != 0 or array[-1] != end or not _ascends(array):
            return f"expected numbers that ascend from 0 to {end}"
    if rule.sorted and not _ascends(array):
        return "expected numbers that ascend"
    if rule.below and array.size:
        low, high = -1 if rule.missing else 0, size(rule.below) + rule.extra
        least, most = int(array.min()), int(array.max())
        if least < low or most >= high:
            return f"expected numbers from {low} to {high - 1}, got {least} to {most}"
    return ""


def _ascends(array: NDArray[Any]) -> bool:
    """Check that no number is smaller than the one before it."""
    for first in range(0, len(array) - 1, _BLOCK):
        block = array[first : first + _BLOCK + 1]
        if (block[1:] < block[:-1]).any():
            return False
    return True
