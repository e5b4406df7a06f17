"""Writer of serving files: flat files, derived from a snapshot's tables, that processes map and share.

Tables are for storage and exchange: compressed, with ids. A question needs single values by row number, immediately and
without a copy in every process. So each snapshot has, in addition to its tables, `serving-2/`:

  *.arrow   texts and ids by row (`storage.serving.text_columns`)
  *.npy     numbers: layers, ends and weights of relations, who is mentioned where, who belongs to which community,
            hashes of names

They contain nothing that the tables do not, and are no part of the snapshot's id. For a snapshot without them they are
derived when it is opened (`storage.snapshot.cache`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import component_labels
from hirag_dist.core.id_rows import IdRows
from hirag_dist.core.retrieval.entity_linking import name_keys, sorted_names
from hirag_dist.core.retrieval.levels import invert
from hirag_dist.core.retrieval.lexical import LexicalIndex, LexicalIndexBuilder, LexicalPart, term_frequencies
from hirag_dist.storage.label_files import LABEL_SETS, LabelProvenanceTables, write_labels
from hirag_dist.storage.layout import ALIASES, CHANGED, SLOTS
from hirag_dist.storage.metadata_files import write_metadata
from hirag_dist.storage.serving.base_values import BaseValues, KeptRows
from hirag_dist.storage.serving.checks import SERVING_ARRAYS
from hirag_dist.storage.serving.claims import write_claims
from hirag_dist.storage.serving.column_arrays import (
    Batches,
    Create,
    Lists,
    Save,
    ids_of,
    known_rows,
    numbers,
    rows_in_lists,
    rows_of_column,
)
from hirag_dist.storage.serving.lexical import FREQUENCIES, LEXICAL_ARRAYS
from hirag_dist.storage.serving.places import write_places
from hirag_dist.storage.serving.renderings import (
    chunk_renderings,
    entity_renderings,
    relation_renderings,
    report_renderings,
    serving_texts,
)
from hirag_dist.storage.serving.text_columns import text_schema, write_texts
from hirag_dist.types import IntVector

SERVING: Final = "serving-2"  # with the format's number

ENTITIES: Final = "entities.arrow"
RELATIONS: Final = "relations.arrow"
CHUNKS: Final = "chunks.arrow"
DOCUMENTS: Final = "documents.arrow"
COMMUNITIES: Final = "communities.arrow"
REPORTS: Final = "reports.arrow"

_TEXTS: Final = {
    ENTITIES: ("entities", text_schema(["entity_id", "name", "type", "description"], wide=["description"])),
    RELATIONS: ("relations", text_schema(["relation_id", "kind", "description"], wide=["description"])),
    CHUNKS: ("chunks", text_schema(["chunk_id", "document_id", "text"], wide=["text"])),
    DOCUMENTS: ("documents", text_schema(["document_id", "title", "uri"])),
    COMMUNITIES: ("communities", text_schema(["community_id"])),
    REPORTS: ("reports", text_schema(["title", "text"], wide=["text"])),
}
FILES: Final = (*(f"{name}.npy" for name in SERVING_ARRAYS), *_TEXTS, LABEL_SETS)  # of every snapshot


def write_serving(
    batches: Batches,
    n_entities: int,
    create: Create,
    values: BaseValues | None = None,
    copied: Callable[[str, Sequence[str]], bool] = lambda name, parts: False,
    kept: Mapping[str, KeptRows] = MappingProxyType({}),
) -> None:
    """Write every serving file.

    Memory: the ids of entities, chunks and documents, the arrays themselves, and one batch of texts; about 1 GB for a
    million entities and five million relations.

    Args:
        batches: (table, columns) → those columns of a table of the snapshot, in order of rows, a batch at a time;
            nothing of an absent optional table.
        n_entities: rows of the table of entities.
        create: file name → that file, open for writing.
        values: values of rows that another snapshot has too; what is written is the same without them.
        copied: (file name, tables and arrays that it is derived from) → whether the file is there already.
        kept: table → its rows that are there already.
    """
    values = values or BaseValues(None)

    def save(name: str, array: NDArray[Any]) -> None:
        with create(f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)

    for file_name, (table, schema) in _TEXTS.items():
        if table in kept:
            save(SLOTS[table], kept[table].slots)
            with create(f"{CHANGED}{file_name}") as file:
                write_texts(file, schema, serving_texts(batches, table, schema.names, kept[table].written))
        elif not copied(file_name, (table,)):
            with create(file_name) as file:
                write_texts(file, schema, serving_texts(batches, table, schema.names))
    chunk_ids = ids_of(batches, "chunks", "chunk_id")
    mentioned_in = _save_entities(batches, save, chunk_ids, values)
    _save_names(batches, save, *values.name_keys(n_entities))
    _save_aliases(batches, save)
    document_ids = ids_of(batches, "documents", "document_id")
    documents = rows_of_column(batches, "chunks", "document_id", document_ids)
    save("chunk_documents", documents)
    save("chunk_spans", np.column_stack([numbers(batches, "chunks", name, np.int64) for name in ("start", "end")]))
    save("chunk_renderings", chunk_renderings(batches, documents, values.chunk_renderings(batches, documents)))
    write_lexical(batches, save, copied, values, kept.get("chunks"))
    entity_ids = ids_of(batches, "entities", "entity_id")
    ends, stated_in = _save_relations(batches, save, entity_ids, chunk_ids, values)
    members = _save_communities(batches, save, entity_ids, values)
    provenance = LabelProvenanceTables(entity_ids, chunk_ids, mentioned_in, stated_in, ends, members)
    write_labels(batches, create, save, provenance)
    write_metadata(batches, create, save, entity_ids)
    write_claims(batches, create, save, entity_ids, chunk_ids)
    write_places(batches, create, save, document_ids)


def _save_entities(batches: Batches, save: Save, chunk_ids: pa.Array, values: BaseValues) -> Lists:
    """Write the columns of entities; return the chunks of each, −1 for an unknown one."""
    save("entity_layers", numbers(batches, "entities", "layer", np.int32))
    save("entity_renderings", entity_renderings(batches, values.entity_renderings(batches)))
    mentioned_in = rows_in_lists(batches("entities", ["chunk_ids"]), chunk_ids)
    indptr, rows = known_rows(*mentioned_in)
    save("entity_chunks_indptr", indptr)
    save("entity_chunks", rows)
    owner = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    counts = np.bincount(rows, minlength=len(chunk_ids))
    save("chunk_entities_indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    save("chunk_entities", owner[np.argsort(rows, kind="stable")])
    return mentioned_in


def _save_names(batches: Batches, save: Save, keys: NDArray[np.uint64], states: NDArray[np.int8]) -> None:
    """Write the names of extracted entities: questions do not name summary entities.

    Args:
        batches, save: as of `write_serving`.
        keys: (n_entities,) keys that are known.
        states: (n_entities,) 1 for an entity whose key is known, 0 for one without a key, −1 for an unknown one.
    """
    first = 0
    for batch in batches("entities", ["name", "layer"]):
        own = states[first : first + batch.num_rows]
        open_rows = np.flatnonzero((own < 0) & (batch.column(1).to_numpy() == 0))
        found, positions = name_keys(batch.column(0).take(pa.array(open_rows)).to_pylist())
        own[open_rows[positions]] = 1
        keys[first + open_rows[positions]] = found
        first += batch.num_rows
    rows = np.flatnonzero(states == 1)
    names = sorted_names(keys[rows], rows)
    save("entity_name_keys", names.keys)
    save("entity_name_rows", names.rows)


def _save_aliases(batches: Batches, save: Save) -> None:
    """Write all names of the entities with aliases; nothing where there is none."""
    rows = rows_of_column(batches, ALIASES, "entity_id", ids_of(batches, "entities", "entity_id"))
    if not len(rows):
        return
    columns = ["name", "canonical_name"]
    keys, positions = name_keys(
        name for batch in batches(ALIASES, columns) for row in batch.to_pylist() for name in row.values()
    )
    own = rows[positions // len(columns)].astype(np.int64)
    names = sorted_names(keys[own >= 0], own[own >= 0])
    again = (np.diff(names.keys) == 0) & (np.diff(names.rows) == 0)  # a canonical name comes with each of its aliases
    first = np.concatenate([[True], ~again]) if len(names.keys) else np.zeros(0, np.bool_)
    save("alias_keys", names.keys[first])
    save("alias_rows", names.rows[first])


def write_lexical(
    batches: Batches,
    save: Save,
    copied: Callable[[str, Sequence[str]], bool],
    values: BaseValues,
    kept: KeptRows | None,
) -> None:
    """Write the lexical index of the chunks, or the part of those that changed.

    Args:
        values: of the base, whose postings of unchanged chunks are taken.
        kept: chunks that are there already, with their part of the index.
    """
    base, base_rows = values.lexical(batches)
    if kept is not None:
        changed = np.flatnonzero(kept.changed)
        if base_rows is not None:
            base_rows = base_rows[changed]
            base_rows[~np.isin(base_rows, base[-1].rows)] = -1  # the part that stays is not read for them
        _save_index(save, CHANGED, _lexical_index(kept.written(batches("chunks", ["text"])), base[1:], base_rows))
        used = np.zeros(len(base[0].index.lengths), np.bool_)
        used[kept.slots[~kept.changed]] = True
        save(FREQUENCIES, term_frequencies(base[0].index, used))
    elif not all(copied(f"{name}.npy", ("chunks",)) for name in LEXICAL_ARRAYS):
        _save_index(save, "", _lexical_index(batches("chunks", ["text"]), base, base_rows))


def _lexical_index(
    batches: Iterable[pa.RecordBatch], base: Sequence[LexicalPart], base_rows: IntVector | None
) -> LexicalIndex:
    """Return the index of some texts, those of a base's rows without looking at them."""
    builder, first = LexicalIndexBuilder(), 0
    for batch in batches:
        rows = np.arange(first, first + batch.num_rows)
        rows = rows if base_rows is None else rows[base_rows[rows] < 0]
        builder.add(rows, batch.column(0).take(pa.array(rows - first)).to_pylist())
        first += batch.num_rows
    return builder.built(first, base, base_rows)


def _save_index(save: Save, prefix: str, index: Sequence[NDArray[Any]]) -> None:
    for name, array in zip(LEXICAL_ARRAYS, index, strict=True):
        save(f"{prefix}{name}", array)


def _save_relations(
    batches: Batches, save: Save, entity_ids: pa.Array, chunk_ids: pa.Array, values: BaseValues
) -> tuple[NDArray[np.int32], Lists]:
    """Write the columns of relations; return the ends and the chunks of each, −1 for an unknown one."""
    ends = np.column_stack(
        [rows_of_column(batches, "relations", name, entity_ids) for name in ("source_id", "target_id")]
    )
    weights = numbers(batches, "relations", "weight", np.float64)
    save("relation_ends", ends)
    save("relation_renderings", relation_renderings(batches, ends, values.relation_renderings(batches, ends)))
    known_ends = ends[(ends >= 0).all(axis=1)]
    components = component_labels(known_ends[:, 0], known_ends[:, 1], len(entity_ids))
    save("entity_components", components.astype(np.int32))
    save("relation_weights", weights)
    of, parallel_indptr, parallel_rows = parallel_relations(ends, weights)
    save("parallel_of", of)
    save("parallel_indptr", parallel_indptr)
    save("parallel_rows", parallel_rows)
    stated_in = rows_in_lists(batches("relations", ["chunk_ids"]), chunk_ids)
    indptr, rows_of_chunks = known_rows(*stated_in)
    save("relation_chunks_indptr", indptr)
    save("relation_chunks", rows_of_chunks)
    return ends, stated_in


def parallel_relations(
    ends: NDArray[np.int32], weights: NDArray[np.float64]
) -> tuple[NDArray[np.int32], IntVector, NDArray[np.int32]]:
    """Return the further relations of pairs that have more than one.

    Args:
        ends: (n, 2) entity rows of each relation; −1 where there is no such entity.
        weights: (n,).

    Returns:
        (of, indptr, rows): `of` the relations that the graph has for the pairs (the heaviest, of equal ones the first),
        ascending; CSR of the others.
    """
    if not len(ends):
        return np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int32)
    low, high = ends.min(axis=1).astype(np.int64), ends.max(axis=1).astype(np.int64)
    usable = np.flatnonzero((low >= 0) & (low != high))
    pairs = low[usable] * (int(high.max()) + 1) + high[usable]  # one key sorts many times faster than two
    order = usable[np.argsort(pairs, kind="stable")]
    pairs.sort(kind="stable")
    same = pairs[1:] == pairs[:-1]
    several = np.zeros(len(order), np.bool_)
    several[1:] |= same
    several[:-1] |= same
    order, pairs = order[several], pairs[several]
    order = order[np.lexsort((order, -weights[order], pairs))]
    first = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]])) if len(pairs) else pairs
    counts = np.diff(np.append(first, len(order))) - 1
    further = np.ones(len(order), np.bool_)
    further[first] = False
    heads = order[first]
    by_head = np.argsort(heads)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]]) if len(counts) else counts
    indptr = np.concatenate([[0], np.cumsum(counts[by_head])]).astype(np.int64)
    at = np.repeat(starts[by_head] - indptr[:-1], counts[by_head]) + np.arange(indptr[-1])
    return heads[by_head].astype(np.int32), indptr, order[further][at.astype(np.int64)].astype(np.int32)


def _save_communities(batches: Batches, save: Save, entity_ids: pa.Array, values: BaseValues) -> Lists:
    """Write the columns of communities; return the members of each, −1 for an unknown one."""
    reported, ratings = ids_of(batches, "reports", "community_id"), numbers(batches, "reports", "rating", np.float64)
    renderings = report_renderings(batches, values.report_renderings(batches))
    levels = numbers(batches, "communities", "level", np.int32)
    ids = ids_of(batches, "communities", "community_id")
    order = np.empty(len(ids), np.int64)
    order[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    report_rows = IdRows(reported).rows(ids).astype(np.int32)
    own_ratings = np.zeros(len(ids), np.float64)
    own_ratings[report_rows >= 0] = ratings[report_rows[report_rows >= 0]]
    own_renderings = np.zeros(len(ids), np.int32)
    own_renderings[report_rows >= 0] = renderings[report_rows[report_rows >= 0]]
    listed = rows_in_lists(batches("communities", ["entity_ids"]), entity_ids)
    indptr, members = known_rows(*listed)
    owner = np.repeat(np.arange(len(ids)), np.diff(indptr))
    members = members[np.lexsort((members, owner))]
    save("community_levels", levels)
    save("community_ratings", own_ratings)
    save("community_order", order)
    save("community_reports", report_rows)
    save("community_renderings", own_renderings)
    save("community_indptr", indptr)
    save("community_members", members)
    of_indptr, of = invert(indptr, members, levels, len(entity_ids))
    save("entity_communities_indptr", of_indptr)
    save("entity_communities", of)
    return listed
