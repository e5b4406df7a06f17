"""Serving files of labels: the label patterns of every row, and the mentions of partially visible rows.

Every snapshot has `label_sets.arrow`, so that a missing file is never taken for an index without labels. The other
files exist only where a document carries labels.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.config.model import Config
from hirag_dist.core.access import Flags, LabelPatterns, label_sets, pattern_of_sets, patterns
from hirag_dist.core.groupby import spans
from hirag_dist.core.id_rows import IdRows
from hirag_dist.storage import layout
from hirag_dist.storage.metadata_files import has_metadata
from hirag_dist.storage.serving.column_arrays import (
    Batches,
    Create,
    Lists,
    Save,
    ids_of,
    numbers,
    rows_of_column,
)
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.text_columns import TextColumns, text_schema, write_texts
from hirag_dist.types import FloatMatrix, IntVector

if TYPE_CHECKING:  # a snapshot imports what writes these files
    from hirag_dist.storage.snapshot.manifest import Manifest
    from hirag_dist.storage.snapshot.reader import Snapshot

LABEL_SETS: Final = "label_sets.arrow"  # a row each: a JSON list
_SET_TEXTS: Final = text_schema(["labels"])
Pairs = tuple[IntVector, IntVector]  # rows, and label sets of their sources


class MentionKind(NamedTuple):
    """The mentions of entities, or of relations: their table, its column of numbers, and the names of their files.

    Attributes:
        owner, each: begin the names of arrays of mentioned rows, and of mentions.
        number: name of the array of numbers.
    """

    table: str
    column: str
    number_type: type[np.generic]
    owner: str
    each: str
    number: str
    file: str
    texts: pa.Schema


OF_ENTITIES: Final = MentionKind(
    layout.ENTITY_MENTIONS,
    "described",
    np.bool_,
    "mentioned",
    "mention",
    "mention_described",
    "entity_mentions.arrow",
    text_schema(["chunk_id", "name", "type", "description"], wide=["description"]),
)
OF_RELATIONS: Final = MentionKind(
    layout.STATEMENTS,
    "strength",
    np.float64,
    "stated",
    "statement",
    "statement_strengths",
    "statements.arrow",
    text_schema(["chunk_id", "description"], wide=["description"]),
)


@dataclass(frozen=True, slots=True)
class LabelProvenanceTables:
    """The sources of rows, as rows of other tables; −1 for an unknown one.

    Attributes:
        entity_ids, chunk_ids: in the order of their tables.
        mentioned_in, stated_in: the chunks of each entity, and of each relation.
        ends: (n_relations, 2) entities.
        members: the entities of each community.
    """

    entity_ids: pa.Array
    chunk_ids: pa.Array
    mentioned_in: Lists
    stated_in: Lists
    ends: NDArray[np.int32]
    members: Lists


def write_labels(batches: Batches, create: Create, save: Save, provenance: LabelProvenanceTables) -> None:
    """Write the files. In memory: the ids of clusters and mentions, and some arrays of the rows.

    Args:
        batches, create: as of `storage.serving.writer.write_serving`.
        save: writes an array under its name.
    """
    carried = [labels for batch in batches("documents", ["labels"]) for labels in batch.column(0).to_pylist()]
    set_of, sets = label_sets(carried)
    with create(LABEL_SETS) as file:
        rows = pa.record_batch([pa.array([json.dumps(labels) for labels in sets], pa.string())], ["labels"])
        write_texts(file, _SET_TEXTS, [rows])
    by_document = has_metadata(batches)
    if not any(sets) and not by_document:
        return
    save_kept = partial(_save_kept, batches, create, save, provenance.chunk_ids, by_document=by_document)
    stated = _relations_of_statements(batches)
    mentioned = rows_of_column(batches, layout.ENTITY_MENTIONS, "entity_id", provenance.entity_ids)
    if not any(sets):
        save_kept(OF_RELATIONS, stated)
        save_kept(OF_ENTITIES, mentioned)
        return
    documents = rows_of_column(batches, "chunks", "document_id", ids_of(batches, "documents", "document_id"))
    # Rows of unknown documents get a label set of their own, which is visible to no caller with labels.
    unknown = np.int32(len(sets))
    chunk_sets = np.append(set_of, unknown)[documents]
    save("chunk_sets", chunk_sets)
    sets_of = np.append(chunk_sets, unknown)  # at −1 too
    entities = _entities(batches, provenance, sets_of, mentioned)
    _save_patterns(save, "entity", entities)
    save_kept(OF_RELATIONS, stated, sets_of)
    relations = _relations(batches, provenance, sets_of, stated)
    _save_patterns(save, "relation", relations)
    levels = numbers(batches, "communities", "level", np.int32)
    _save_patterns(save, "community", _communities(provenance, levels, entities, relations, int(unknown)))
    save_kept(OF_ENTITIES, mentioned, sets_of)


def _save_patterns(save: Save, what: str, found: LabelPatterns) -> None:
    save(f"{what}_patterns", found.of)
    save(f"{what}_pattern_indptr", found.indptr)
    save(f"{what}_pattern_sets", found.sets)
    save(f"{what}_pattern_divisible", found.divisible)


def _sets_behind(lists: Lists, rows: IntVector, sets_of: NDArray[np.int32]) -> Pairs:
    """Return the label sets of the chunks of some rows; the unknown set for rows without chunks.

    Args:
        rows: ascending.
        sets_of: of chunks, the unknown one last.
    """
    indptr, chunks = lists
    sizes = np.diff(indptr)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    wanted = np.zeros(len(sizes), np.bool_)
    wanted[rows] = True
    kept = wanted[owner]
    lacking = rows[sizes[rows] == 0]
    return _together([(owner[kept], sets_of[chunks[kept]].astype(np.int64)), _all_of(lacking, sets_of[-1])])


def _all_of(rows: IntVector, label_set: int) -> Pairs:
    return rows, np.full(len(rows), label_set, np.int64)


def _entities(
    batches: Batches, provenance: LabelProvenanceTables, sets_of: NDArray[np.int32], mentioned: NDArray[np.int32]
) -> LabelPatterns:
    """Return the label patterns of entities.

    An entity of layer 0 has the labels of the documents that mention it; a summary entity has those of the members of
    its clusters that a model was shown.
    """
    layers = numbers(batches, "entities", "layer", np.int32)
    n_layers = int(layers.max(initial=0)) + 1
    bounds = np.searchsorted(layers, np.arange(n_layers + 1))
    pairs = [_sets_behind(provenance.mentioned_in, np.arange(bounds[1]), sets_of)]
    if n_layers > 1:
        owners = rows_of_column(batches, layout.SUMMARY_SOURCES, "entity_id", provenance.entity_ids)
        members = rows_of_column(batches, "clusters", "entity_id", provenance.entity_ids)
        cluster_ids = ids_of(batches, "clusters", "cluster_id").unique()
        clusters = rows_of_column(batches, "clusters", "cluster_id", cluster_ids)
        sources = rows_of_column(batches, layout.SUMMARY_SOURCES, "cluster_id", cluster_ids)
    for layer in range(1, n_layers):
        (first, middle), last = bounds[layer - 1 : layer + 1], bounds[layer + 1]
        rows, sets = pairs[-1]
        below = patterns(rows - first, sets, middle - first)
        inside = (members >= first) & (members < middle)
        own = (owners >= middle) & (owners < last)
        row, source = owners[own], sources[own]
        # The sources of a cluster that is missing, or has unknown members or members of another layer, are unknown.
        odd = np.ones(len(cluster_ids) + 1, np.bool_)
        odd[clusters] = False
        odd[clusters[~inside & np.isin(clusters, source)]] = True
        cluster_patterns = patterns(
            *pattern_of_sets(clusters[inside], below.of[members[inside] - first], below), len(cluster_ids)
        )
        known = pattern_of_sets(row[~odd[source]], cluster_patterns.of[source[~odd[source]]], cluster_patterns)
        lacking = np.concatenate([row[odd[source]], np.setdiff1d(np.arange(middle, last), row)])
        pairs.append(_together([known, _all_of(lacking, sets_of[-1])]))
    divisible = np.zeros(len(layers), np.bool_)
    divisible[mentioned[mentioned >= 0]] = True
    return patterns(*_together(pairs), len(layers), divisible)


def _relations(
    batches: Batches, provenance: LabelProvenanceTables, sets_of: NDArray[np.int32], statements: NDArray[np.int32]
) -> LabelPatterns:
    """Return the label patterns of relations.

    An extracted relation has the labels of the documents that state it. The others have none: they are visible where
    both ends are.
    """
    extracted = pc.equal(ids_of(batches, "relations", "kind"), "extracted").to_numpy(zero_copy_only=False)
    pairs = _sets_behind(provenance.stated_in, np.flatnonzero(extracted), sets_of)
    divisible = np.zeros(len(extracted), np.bool_)
    divisible[statements[statements >= 0]] = True
    return patterns(*pairs, len(extracted), divisible)


def _communities(
    provenance: LabelProvenanceTables,
    levels: NDArray[np.int32],
    entities: LabelPatterns,
    relations: LabelPatterns,
    unknown: int,
) -> LabelPatterns:
    """Return the label patterns of communities: those of their members and of the relations among these."""
    indptr, listed = provenance.members
    owner = np.repeat(np.arange(len(levels)), np.diff(indptr))
    known = listed >= 0
    found = [pattern_of_sets(owner[known], entities.of[listed[known]], entities), _all_of(owner[~known], unknown)]
    usable = (provenance.ends >= 0).all(axis=1)
    source, target = provenance.ends[usable].T
    for level in range(int(levels.max(initial=-1)) + 1):
        here = (levels[owner] == level) & known
        position = np.full(len(entities.of), -1, np.int64)
        position[listed[here]] = owner[here]
        inside = (position[source] >= 0) & (position[source] == position[target])
        found.append(pattern_of_sets(position[source[inside]], relations.of[usable][inside], relations))
    return patterns(*_together(found), len(levels))


def _together(pairs: Sequence[Pairs]) -> Pairs:
    return np.concatenate([rows for rows, _ in pairs]), np.concatenate([sets for _, sets in pairs])


def _relations_of_statements(batches: Batches) -> NDArray[np.int32]:
    stated = ids_of(batches, layout.STATEMENTS, "relation_id")
    if not len(stated):  # then there is no need to read the ids of all relations
        return np.zeros(0, np.int32)
    return IdRows(ids_of(batches, "relations", "relation_id")).rows(stated).astype(np.int32)


def _save_kept(
    batches: Batches,
    create: Create,
    save: Save,
    chunk_ids: pa.Array,
    kind: MentionKind,
    owners: NDArray[np.int32],
    sets_of: NDArray[np.int32] | None = None,
    *,
    by_document: bool,
) -> None:
    """Write the mentions of one kind in the order of their table, which is the order of their owners.

    Args:
        owners: the entity or relation of each.
        sets_of: label sets of chunks, the unknown one last; None: no document carries labels.
        by_document: write the chunk of each.
    """
    distinct, counts = np.unique(owners, return_counts=True)
    save(f"{kind.owner}_rows", distinct)
    save(f"{kind.owner}_indptr", np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    chunks = rows_of_column(batches, kind.table, "chunk_id", chunk_ids)
    if sets_of is not None:
        save(f"{kind.each}_sets", sets_of[chunks])
    if by_document:
        save(f"{kind.each}_chunks", chunks)
    save(f"{kind.each}_positions", numbers(batches, kind.table, "position", np.int32))
    save(kind.number, numbers(batches, kind.table, kind.column, kind.number_type))
    with create(kind.file) as file:
        write_texts(file, kind.texts, batches(kind.table, kind.texts.names))


_MAX_MENTIONS = 1000  # maximum mentions of a row that its text is made of: a hub has one in every chunk


@dataclass(frozen=True, slots=True)
class Mentions:
    """The mentions of rows with several label sets, or several documents: CSR over these rows, and columns by mention.

    Attributes:
        rows: (n,) int32, ascending.
        indptr: (n + 1,) int64 first mention of each row.
        sets: (n_mentions,) int32 label set, or chunk, of each, in the order of chunks.
        positions: (n_mentions,) int32 of each in the reply for its chunk.
        numbers: (n_mentions,) whether an entity is described, or the strength of a relation.
    """

    rows: NDArray[np.int32]
    indptr: NDArray[np.int64]
    sets: NDArray[np.int32]
    positions: NDArray[np.int32]
    numbers: NDArray[Any]
    texts: TextColumns

    @classmethod
    def mapped(cls, files: ServingFiles, kind: MentionKind, places: str) -> Mentions:
        """Return the kept mentions of a kind, with the `sets` or the `chunks` of each as `sets`."""
        return cls(
            rows=files.array(f"{kind.owner}_rows"),
            indptr=files.array(f"{kind.owner}_indptr"),
            sets=files.array(f"{kind.each}_{places}"),
            positions=files.array(f"{kind.each}_positions"),
            numbers=files.array(kind.number),
            texts=files.texts(kind.file),
        )

    def visible(self, rows: IntVector, in_reach: Flags) -> tuple[IntVector, IntVector]:
        """Return (owners, positions): the first visible mentions of some of the rows, and the row of each."""
        at = np.searchsorted(self.rows, rows)
        owners, positions = spans(self.indptr[at], self.indptr[at + 1])
        reached = in_reach[self.sets[positions]]
        owners, positions = owners[reached], positions[reached]
        first = np.searchsorted(owners, np.arange(len(rows)))
        kept = np.arange(len(owners)) - first[owners] < _MAX_MENTIONS
        return owners[kept], positions[kept]

    def by_row(self, rows: IntVector, in_reach: Flags, names: Iterable[str]) -> list[list[tuple[Any, ...]]]:
        """Return the first visible mentions of each row: (position in its reply, number, text of each name)."""
        owners, at = self.visible(rows, in_reach)
        places = at.tolist()
        texts = (self.texts.values(name, places) for name in names)
        mentions = list(zip(self.positions[at].tolist(), self.numbers[at].tolist(), *texts, strict=True))
        bounds = np.searchsorted(owners, np.arange(len(rows) + 1)).tolist()
        return [mentions[first:last] for first, last in pairwise(bounds)]


class LabelFiles:
    """The label files of an index whose documents carry labels, mapped.

    Attributes:
        chunk_sets: (n_chunks,) int32 label set.
        entities, relations, communities: the label sets of their sources.
        mentions, statements: Mentions of entities, and statements of relations.
        part_vectors: (n_parts, dim) float32.
        part_entities, part_sets: (n_parts,) int32 entity row, ascending, and label set.
        max_tokens: Maximum tokens of a description, in the build.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Map the files. Raises SnapshotCorrupt where one cannot be read."""
        files = snapshot.serving
        self.chunk_sets: NDArray[np.int32] = files.array("chunk_sets")
        self.entities = _patterns(files, "entity")
        self.relations = _patterns(files, "relation")
        self.communities = _patterns(files, "community")
        self.mentions = Mentions.mapped(files, OF_ENTITIES, "sets")
        self.statements = Mentions.mapped(files, OF_RELATIONS, "sets")
        self.part_vectors: FloatMatrix = np.zeros((0, snapshot.manifest.dim), np.float32)
        self.part_entities = self.part_sets = np.zeros(0, np.int32)
        if layout.PARTS in snapshot.manifest.content:
            parts = (snapshot.array(name) for name in layout.PART_ARRAYS)
            self.part_vectors, self.part_entities, self.part_sets = parts
        self.max_tokens = description_tokens(snapshot.manifest)


def read_label_sets(snapshot: Snapshot) -> list[tuple[str, ...]]:
    """Return the label sets of a snapshot's documents, by number. Raises SnapshotCorrupt."""
    texts = snapshot.serving.texts(LABEL_SETS)
    return [tuple(json.loads(text)) for text in texts.values("labels", range(texts.n_rows))]


def description_tokens(manifest: Manifest) -> int:
    """Return the tokens of a description in the build of a snapshot."""
    built = manifest.build.get("config", {})
    return int(built.get("description_tokens", Config.model_fields["description_tokens"].default))


def _patterns(files: ServingFiles, what: str) -> LabelPatterns:
    return LabelPatterns(
        of=files.array(f"{what}_patterns"),
        indptr=files.array(f"{what}_pattern_indptr"),
        sets=files.array(f"{what}_pattern_sets"),
        divisible=files.array(f"{what}_pattern_divisible"),
    )
