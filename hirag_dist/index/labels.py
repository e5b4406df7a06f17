"""The serving files of labels: what stands behind every row, and the mentions of what is seen in part.

`label_sets.arrow` is there in every snapshot, so that none is taken for one without labels because a file is missing.
The others are there only where a document carries labels.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access import Patterns, label_sets, patterns, spread
from hirag_dist.index import layout
from hirag_dist.index.columns import (
    Batches,
    Create,
    Save,
    ids_of,
    known_rows,
    numbers,
    rows_in_lists,
    rows_of_column,
)
from hirag_dist.index.texts import text_schema, write_texts
from hirag_dist.types import IntVector

LABEL_SETS: Final = "label_sets.arrow"  # a row each: a JSON list
ENTITY_MENTIONS: Final = "entity_mentions.arrow"
STATEMENTS: Final = "statements.arrow"
_SET_TEXTS: Final = text_schema(["labels"])
_MENTION_TEXTS: Final = text_schema(["chunk_id", "name", "type", "description"], wide=["description"])
_STATEMENT_TEXTS: Final = text_schema(["chunk_id", "description"], wide=["description"])
Pairs = tuple[IntVector, IntVector]  # rows, and the label sets behind them


def write_labels(batches: Batches, create: Create, save: Save, entity_ids: pa.Array, chunk_ids: pa.Array) -> None:
    """Write the files. Memory: that of the clusters' and mentions' ids.

    Args:
        batches, create: as `index.serving.write_serving` has them.
        save: writes an array under its name.
        entity_ids, chunk_ids: in the order of their tables.
    """
    carried = [labels for batch in batches("documents", ["labels"]) for labels in batch.column(0).to_pylist()]
    set_of, sets = label_sets(carried)
    with create(LABEL_SETS) as file:
        rows = pa.record_batch([pa.array([json.dumps(labels) for labels in sets], pa.string())], ["labels"])
        write_texts(file, _SET_TEXTS, [rows])
    if not any(sets):
        return
    unknown = len(sets)  # behind what comes from no document that is known: in nobody's reach
    documents = rows_of_column(batches, "chunks", "document_id", ids_of(batches, "documents", "document_id"))
    chunk_sets = np.append(set_of, np.int32(unknown))[documents]  # −1 is the last
    save("chunk_sets", chunk_sets)
    entities = _entities(batches, entity_ids, chunk_ids, chunk_sets, unknown)
    _save_patterns(save, "entity", entities)
    relation_ids = ids_of(batches, "relations", "relation_id")
    relations = _relations(batches, relation_ids, chunk_ids, chunk_sets, unknown)
    _save_patterns(save, "relation", relations)
    _save_patterns(save, "community", _communities(batches, entity_ids, entities, relations))
    sets_of_chunks = np.append(chunk_sets, np.int32(unknown))
    _save_mentions(batches, create, save, entity_ids, chunk_ids, sets_of_chunks)
    _save_statements(batches, create, save, relation_ids, chunk_ids, sets_of_chunks)


def _save_patterns(save: Save, what: str, found: Patterns) -> None:
    save(f"{what}_patterns", found.of)
    save(f"{what}_pattern_indptr", found.indptr)
    save(f"{what}_pattern_sets", found.sets)
    save(f"{what}_pattern_divisible", found.divisible)


def _stated_in(
    batches: Batches, table: str, chunk_ids: pa.Array, chunk_sets: NDArray[np.int32], unknown: int, rows: IntVector
) -> Pairs:
    """Return the label sets of the documents behind some rows of a table; of none it is the unknown one.

    Args:
        rows: ascending.
    """
    indptr, chunks = rows_in_lists(batches(table, ["chunk_ids"]), chunk_ids)
    sizes = np.diff(indptr)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    wanted = np.zeros(len(sizes), np.bool_)
    wanted[rows] = True
    kept = wanted[owner]
    lacking = rows[sizes[rows] == 0]
    sets = np.append(chunk_sets, np.int32(unknown))[chunks[kept]]  # −1 is the last
    return np.concatenate([owner[kept], lacking]), np.concatenate([sets, np.full(len(lacking), unknown)])


def _entities(
    batches: Batches, entity_ids: pa.Array, chunk_ids: pa.Array, chunk_sets: NDArray[np.int32], unknown: int
) -> Patterns:
    """Return what stands behind entities: the documents that mention them, or whatever the clusters held whose
    members a model was shown."""
    layers = numbers(batches, "entities", "layer", np.int32)
    n_layers = int(layers.max(initial=0)) + 1
    bounds = np.searchsorted(layers, np.arange(n_layers + 1))
    pairs = [_stated_in(batches, "entities", chunk_ids, chunk_sets, unknown, np.arange(bounds[1]))]
    owners = rows_of_column(batches, layout.SUMMARY_SOURCES, "entity_id", entity_ids)
    members = rows_of_column(batches, "clusters", "entity_id", entity_ids)
    cluster_ids = ids_of(batches, "clusters", "cluster_id").unique()
    clusters = rows_of_column(batches, "clusters", "cluster_id", cluster_ids)
    sources = rows_of_column(batches, layout.SUMMARY_SOURCES, "cluster_id", cluster_ids)
    for layer in range(1, n_layers):
        (first, middle), last = bounds[layer - 1 : layer + 1], bounds[layer + 1]
        rows, sets = pairs[-1]
        below = patterns(rows - first, sets, middle - first)
        inside = (members >= first) & (members < middle)
        of_clusters = spread(clusters[inside], below.of[members[inside] - first], below)
        behind = patterns(*of_clusters, len(cluster_ids))
        own = (owners >= middle) & (owners < last) & (sources >= 0)
        found, sets = spread(owners[own], behind.of[sources[own]], behind)
        lacking = np.setdiff1d(np.arange(middle, last), found)
        pairs.append((np.concatenate([found, lacking]), np.concatenate([sets, np.full(len(lacking), unknown)])))
    divisible = np.zeros(len(layers), np.bool_)
    told = rows_of_column(batches, layout.ENTITY_MENTIONS, "entity_id", entity_ids)
    divisible[told[told >= 0]] = True
    return patterns(*_together(pairs), len(layers), divisible)


def _relations(
    batches: Batches, relation_ids: pa.Array, chunk_ids: pa.Array, chunk_sets: NDArray[np.int32], unknown: int
) -> Patterns:
    """Return what stands behind relations: the documents that state the extracted ones, nothing behind the others,
    which are seen where both ends are."""
    kinds = [batch.column(0) for batch in batches("relations", ["kind"])]
    extracted = np.concatenate(
        [np.zeros(0, np.bool_), *(np.asarray(kind.to_numpy(zero_copy_only=False) == "extracted") for kind in kinds)]
    )
    pairs = _stated_in(batches, "relations", chunk_ids, chunk_sets, unknown, np.flatnonzero(extracted))
    divisible = np.zeros(len(extracted), np.bool_)
    told = rows_of_column(batches, layout.STATEMENTS, "relation_id", relation_ids)
    divisible[told[told >= 0]] = True
    return patterns(*pairs, len(extracted), divisible)


def _communities(batches: Batches, entity_ids: pa.Array, entities: Patterns, relations: Patterns) -> Patterns:
    """Return what stands behind communities: all that does behind their members, and the relations among these."""
    levels = numbers(batches, "communities", "level", np.int32)
    indptr, members = known_rows(*rows_in_lists(batches("communities", ["entity_ids"]), entity_ids))
    owner = np.repeat(np.arange(len(levels)), np.diff(indptr))
    found = [spread(owner, entities.of[members], entities)]
    ends = [rows_of_column(batches, "relations", name, entity_ids) for name in ("source_id", "target_id")]
    usable = (ends[0] >= 0) & (ends[1] >= 0)
    source, target = (end[usable] for end in ends)
    for level in range(int(levels.max(initial=-1)) + 1):
        here = levels[owner] == level
        place = np.full(len(entity_ids), -1, np.int64)
        place[members[here]] = owner[here]
        inside = (place[source] >= 0) & (place[source] == place[target])
        found.append(spread(place[source[inside]], relations.of[usable][inside], relations))
    return patterns(*_together(found), len(levels))


def _together(pairs: Sequence[Pairs]) -> Pairs:
    return np.concatenate([rows for rows, _ in pairs]), np.concatenate([sets for _, sets in pairs])


def _save_mentions(
    batches: Batches,
    create: Create,
    save: Save,
    entity_ids: pa.Array,
    chunk_ids: pa.Array,
    chunk_sets: NDArray[np.int32],
) -> None:
    """Write the mentions in the order of their table, which is that of the entities' rows."""
    table = layout.ENTITY_MENTIONS
    _save_groups(save, "mentioned", rows_of_column(batches, table, "entity_id", entity_ids))
    save("mention_sets", chunk_sets[rows_of_column(batches, table, "chunk_id", chunk_ids)])
    save("mention_positions", numbers(batches, table, "position", np.int32))
    save("mention_described", numbers(batches, table, "described", np.bool_))
    with create(ENTITY_MENTIONS) as file:
        write_texts(file, _MENTION_TEXTS, batches(table, _MENTION_TEXTS.names))


def _save_statements(
    batches: Batches,
    create: Create,
    save: Save,
    relation_ids: pa.Array,
    chunk_ids: pa.Array,
    chunk_sets: NDArray[np.int32],
) -> None:
    table = layout.STATEMENTS
    _save_groups(save, "stated", rows_of_column(batches, table, "relation_id", relation_ids))
    save("statement_sets", chunk_sets[rows_of_column(batches, table, "chunk_id", chunk_ids)])
    save("statement_positions", numbers(batches, table, "position", np.int32))
    save("statement_strengths", numbers(batches, table, "strength", np.float64))
    with create(STATEMENTS) as file:
        write_texts(file, _STATEMENT_TEXTS, batches(table, _STATEMENT_TEXTS.names))


def _save_groups(save: Save, name: str, rows: NDArray[np.int32]) -> None:
    """Write which rows there are, ascending, and where the mentions of each begin."""
    own, counts = np.unique(rows, return_counts=True)
    save(f"{name}_rows", own)
    save(f"{name}_indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
