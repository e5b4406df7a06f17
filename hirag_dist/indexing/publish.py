"""Datasets of a finished build → one snapshot; a snapshot with losses accepted since → another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.core.graph.communities import lineage as communities_continued
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.prompts.reply_validation import KEPT
from hirag_dist.core.reports.selection import ReportChoice, missing_reports
from hirag_dist.core.row_changes import ChangedRows
from hirag_dist.core.vectors import SlottedVectors, Vectors, stacked, taken
from hirag_dist.errors import SnapshotError
from hirag_dist.execution.dataset import Dataset, DatasetStore
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage_results import Drops, split_letters
from hirag_dist.indexing.budget import usage_table
from hirag_dist.indexing.content_remarks import NOTE, content_notes, cut_ids
from hirag_dist.indexing.metadata import NO_METADATA, DocumentMetadata
from hirag_dist.indexing.stages.access_labels import part_rows
from hirag_dist.indexing.stages.embed import vector_blocks
from hirag_dist.indexing.stages.report import WriteReports
from hirag_dist.indexing.stages.summarise import SummariseClusters
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import REJECTS, SUMMARY_SOURCES
from hirag_dist.storage import layout
from hirag_dist.storage.layout import (
    ALIASES,
    CLAIMS,
    CONTENT_TABLES,
    DESCRIPTION_DEBT,
    DROPPED,
    EXTRACTION_COSTS,
    MENTIONS,
    OPTIONAL_CONTENT,
    PART_ARRAYS,
    PLACES,
    RELATION_MENTIONS,
    REPORT_INPUTS,
    SUMMARIES,
    UPDATE_TABLES,
    VECTORS,
)
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.snapshot.manifest import MISSING_REPORTS, UPDATE, Manifest, UpdateNote
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot
from hirag_dist.storage.spill import SpillFile, spill_file
from hirag_dist.storage.store import Store
from hirag_dist.types import CsrGraph, IntVector

ARRAYS = (
    "graph/indptr",
    "graph/indices",
    "graph/weights",
    "graph/relation_rows",
    "vectors/entities",
    "vectors/chunks",
)

_ORDER: Mapping[str, Sequence[str]] = {  # what each table of `SnapshotContents` is sorted by
    "documents": ("document_id",),
    "chunks": ("document_id", "position"),
    "entities": ("layer", "entity_id"),
    "relations": ("relation_id",),
    "clusters": ("layer", "cluster_id", "entity_id"),
    "communities": (),  # as they were found
    "reports": ("level", "community_id"),
    ALIASES: ("name_key",),
    CLAIMS: ("claim_id",),
    PLACES: ("document_id", "start"),
    MENTIONS: ("name_key", "chunk_id", "position"),
    RELATION_MENTIONS: ("source_key", "target_key", "chunk_id", "position"),
    EXTRACTION_COSTS: ("chunk_id", "stage"),
    SUMMARIES: ("layer", "cluster_id"),
    REPORT_INPUTS: ("community_id",),
}

_OF_STATE = (*UPDATE_TABLES, EXTRACTION_COSTS, DESCRIPTION_DEBT)  # tables of `UpdateState`


@dataclass(frozen=True)
class VectorRows:
    """Vectors in memory: (n,) ids, and (any, dim) float32 vectors of n rows together, as `stacked` takes them."""

    ids: pa.ChunkedArray
    blocks: Sequence[Vectors]


@dataclass(frozen=True)
class LabelProvenance:
    """Mentions, sources and vectors that separate the documents of several label sets, or single ones for filters.

    Attributes:
        entity_mentions, statements: the mentions of the entities and relations that several label sets speak of; with
            metadata, of those that several documents speak of.
        summary_sources: the clusters behind each summary entity.
        part_vectors: VECTORS of what each label set says of such an entity, by
            `indexing.stages.access_labels.part_rows`.
    """

    entity_mentions: Dataset
    statements: Dataset
    summary_sources: Dataset
    part_vectors: Dataset
    rejects: Dataset = Dataset(REJECTS)


@dataclass(frozen=True)
class SnapshotContents:
    """Content of a snapshot: tables that are sorted as `_ORDER` says, and datasets."""

    documents: Dataset
    chunks: Dataset
    entities: ChangedRows
    relations: ChangedRows
    clusters: pa.Table
    layers: pa.Table
    graph: CsrGraph
    communities: Dataset
    reports: Dataset
    rejects: Dataset
    entity_vectors: VectorRows
    chunk_vectors: Dataset | VectorRows
    aliases: Dataset
    claims: Dataset
    labelled: LabelProvenance | None = None
    metadata: DocumentMetadata = NO_METADATA
    state: UpdateState | None = None
    cut_ids: frozenset[str] = frozenset()
    places: Dataset = Dataset(schemas.PLACES)


@dataclass(frozen=True)
class NewVectors:
    """Vectors of all texts of a snapshot by another embedder.

    Attributes:
        entities, chunks: VECTORS.
        parts: VECTORS of what each label set says of an entity; empty where no document carries labels.
        rejects: all dead letters of the snapshot.
    """

    entities: Dataset
    chunks: Dataset
    parts: Dataset
    rejects: Dataset


@dataclass(frozen=True)
class UpdateState:
    """The state that an update of the snapshot starts from.

    Attributes:
        mentions, relation_mentions: that layer 0 was merged from.
        extraction_costs: EXTRACTION_COSTS of the chunks whose cost is known.
        description_debt: DESCRIPTION_DEBT, sorted by key.
        summaries, report_inputs: SUMMARIES sorted by (layer, cluster), REPORT_INPUTS sorted by community.
    """

    mentions: Dataset | ChangedRows
    relation_mentions: Dataset | ChangedRows
    extraction_costs: Dataset
    description_debt: pa.Table
    summaries: ChangedRows
    report_inputs: ChangedRows
    note: UpdateNote


def publish(
    runner: StageRunner,
    parts: SnapshotContents,
    *,
    embedder: str,
    dim: int,
    build: Mapping[str, Any],
    base: Snapshot | None = None,
    choice: ReportChoice | None = None,
) -> Manifest:
    """Write the snapshot of a build; going live is left to the caller.

    Tables and vectors lie in a temporary folder, mapped (`storage.spill`). Memory: dead letters and reports of what
    was spent, the graph, what `write_serving` and `lineage` say, and up to 1 GiB of one column twice.

    Args:
        base: the snapshot that an update started from. None: a build from nothing, which takes values from the
            current snapshot and leaves no row in its files.
        choice: the rule by which reports were written; None where they came with an imported graph.

    Raises:
        StoreError: the temporary folder or the index has no room; nothing that was done is lost.
    """
    datasets = runner.datasets
    with spill_file() as folder:
        tables = _tables(runner, folder, parts)
        tables |= _letter_tables(datasets.read(parts.rejects), runner.drops)
        graph, entity_ids = parts.graph, tables["entities"]["entity_id"]
        arrays: dict[str, NDArray[Any] | SlottedVectors] = {
            "graph/indptr": graph.indptr,
            "graph/indices": graph.indices,
            "graph/weights": graph.weights,
            "graph/relation_rows": graph.relation_rows,
        }
        arrays |= _vector_arrays(datasets, folder, tables, parts.entity_vectors, parts.chunk_vectors, dim)
        tables |= parts.metadata.tables()
        if parts.labelled is not None:
            tables |= _label_tables(datasets, folder, parts.labelled)
            arrays |= _part_arrays(datasets, folder, parts.labelled.part_vectors, entity_ids, dim)
        return write_snapshot(
            runner.store,
            tables,
            arrays,
            embedder=embedder,
            complete=tables["rejects"].num_rows == 0,
            build=build,
            notes={
                "lineage": lineage(runner.store, tables["communities"]),
                NOTE: _content_notes(tables, arrays, parts.cut_ids, None if base is None else base.manifest),
            }
            | _report_notes(tables, choice)
            | ({} if parts.state is None else {UPDATE: parts.state.note.model_dump()}),
            base=base or _current(runner.store),
            keeps_rows=base is not None and parts.state is not None and not parts.state.note.documents.get("removed"),
            origins={} if base is None else _origins(parts),
        )


_PUT_OFF = (  # kind of text and its table, stage, column of its unit
    ("summaries", SummariseClusters.name, "cluster_id"),
    ("reports", WriteReports.name, "community_id"),
)


def republish(store: Store, snapshot_id: str, drops: Drops) -> Manifest:
    """Write a snapshot again with the losses that were accepted since. Its content is the same, dead letters aside.

    Memory: one table at a time.
    """
    before = open_snapshot(store, snapshot_id)
    with spill_file() as folder:
        tables = _tables_of(folder, before) | _tables_of(folder, before, ["usage"])
        letters = pa.concat_tables([before.table("rejects"), before.table(DROPPED).select(REJECTS.names)])
        tables |= _letter_tables(letters, drops)
        manifest = write_snapshot(
            store,
            tables,
            _arrays_of(before, (*ARRAYS, *PART_ARRAYS)),
            embedder=before.manifest.embedder,
            complete=tables["rejects"].num_rows == 0,
            build=before.manifest.build,
            notes={**before.manifest.notes, **_without_dropped(before, drops)},
            base=before,
        )
    return _with_read_files(before, manifest)


def _without_dropped(before: Snapshot, drops: Drops) -> dict[str, Any]:
    """Return the note about the update of a snapshot; summaries and reports that are dropped now are no debt in it."""
    note = before.manifest.update
    if note is None:
        return {}
    letters, debt = before.table("rejects", ["stage", "unit_id", "reason"]).to_pylist(), dict(note.debt)
    for kind, stage, key in _PUT_OFF:
        own = [row for row in letters if row["stage"] == stage and not row["reason"].startswith(KEPT)]
        gone = [row["unit_id"] for row in own if (stage, row["unit_id"]) in drops]
        texts = debt.get(kind)
        if gone and texts is not None and texts.units:
            stand_ins = pc.is_in(before.table(kind, [key])[key], value_set=pa.array(gone))
            left = max(texts.units - pc.sum(stand_ins).as_py(), 0)
            values = {"units": left, "tokens": texts.tokens * left // texts.units}
            debt[kind] = texts.model_copy(update=values | {"stand_ins": min(texts.stand_ins, left)})
    return {UPDATE: note.model_copy(update={"debt": debt}).model_dump()}


def publish_vectors(
    runner: StageRunner,
    before: Snapshot,
    vectors: NewVectors,
    *,
    embedder: str,
    dim: int,
    update: UpdateNote,
) -> Manifest:
    """Write a snapshot again with vectors of another embedder; going live is left to the caller.

    Memory: one table at a time.
    """
    datasets, manifest = runner.datasets, before.manifest
    with spill_file() as folder:
        tables = _tables_of(folder, before) | {"usage": stage_usage(runner.bill.by_stage)}
        tables |= _letter_tables(datasets.read(vectors.rejects), runner.drops)
        arrays = _arrays_of(before, [name for name in ARRAYS if name.startswith("graph/")])
        arrays |= _vector_arrays(datasets, folder, tables, vectors.entities, vectors.chunks, dim)
        arrays |= _part_arrays(datasets, folder, vectors.parts, tables["entities"]["entity_id"], dim)
        content = _content_notes(tables, arrays, cut_ids(manifest))
        written = write_snapshot(
            runner.store,
            tables,
            arrays,
            embedder=embedder,
            complete=tables["rejects"].num_rows == 0,
            build=manifest.build,
            notes={**manifest.notes, "lineage": {}, NOTE: content, UPDATE: update.model_dump()},
            base=before,
        )
    return _with_read_files(before, written)


def _with_read_files(before: Snapshot, written: Manifest) -> Manifest:
    """Give a snapshot the table of the files that its documents were read from; another one has the same documents."""
    source, target = (layout.read_files_path(own) for own in (before.manifest.snapshot_id, written.snapshot_id))
    if source != target and before.store.exists(source):
        before.store.copy(source, target)
    return written


def _arrays_of(before: Snapshot, names: Sequence[str]) -> dict[str, NDArray[Any] | SlottedVectors]:
    """Return arrays of a snapshot, as far as it has them, as they were given when it was written."""
    vectors = {name: table for table, name in VECTORS.items()}
    return {
        name: before.vectors(vectors[name]) if name in vectors else before.array(name)
        for name in names
        if name in before.manifest.content
    }


def _tables_of(folder: SpillFile, before: Snapshot, names: Sequence[str] = ()) -> dict[str, pa.Table]:
    """Return tables of a snapshot, by default all of its content, as they were given when it was written."""
    optional = [name for name in (*OPTIONAL_CONTENT, EXTRACTION_COSTS) if name in before.manifest.counts]
    tables = {}
    for name in names or (*CONTENT_TABLES, *optional):
        # Parquet names the items of lists otherwise, and the id is a hash of types too.
        schema = getattr(schemas, name.upper())
        tables[name] = folder.table([before.table(name).cast(schema)], schema)
    return tables


def _tables(runner: StageRunner, folder: SpillFile, parts: SnapshotContents) -> dict[str, pa.Table]:
    """Return all tables but those of dead letters and of labels, in the order in which they are written."""
    tables = {"layers": parts.layers, "usage": stage_usage(runner.bill.by_stage)}
    state = parts.state
    for name, by in _ORDER.items():
        dataset = _rows(parts, name)
        if isinstance(dataset, pa.Table):
            tables[name] = dataset
        elif isinstance(dataset, ChangedRows):
            tables[name] = dataset.table
        elif dataset is not None and (dataset.rows or name not in (ALIASES, CLAIMS, PLACES)):
            tables[name] = folder.table(runner.datasets.tables(dataset), dataset.schema, by)
    if state is not None and state.description_debt.num_rows:
        tables[DESCRIPTION_DEBT] = state.description_debt
    order = (*CONTENT_TABLES, "usage", ALIASES, CLAIMS, PLACES, *_OF_STATE)
    return {name: tables[name] for name in order if name in tables}


def _rows(parts: SnapshotContents, name: str) -> Dataset | pa.Table | ChangedRows | None:
    """Return the rows of a table by its name; None where there are none."""
    found: Dataset | pa.Table | ChangedRows | None = getattr(parts.state if name in _OF_STATE else parts, name, None)
    return found


def _origins(parts: SnapshotContents) -> dict[str, IntVector]:
    """Return table → the row of each of its rows in the base, where that is known."""
    found = {name: _rows(parts, name) for name in _ORDER}
    return {name: rows.origin for name, rows in found.items() if isinstance(rows, ChangedRows)}


def _label_tables(datasets: DatasetStore, folder: SpillFile, labelled: LabelProvenance) -> dict[str, pa.Table]:
    """Return the tables of `layout.LABEL_TABLES`, each sorted, including empty ones: they mark an index with labels."""
    mentions, statements = labelled.entity_mentions, labelled.statements
    sources = (
        datasets.read(labelled.summary_sources).group_by(SUMMARY_SOURCES.names).aggregate([]).cast(SUMMARY_SOURCES)
    )
    by_place = ("chunk_id", "position")
    return {
        layout.ENTITY_MENTIONS: folder.table(datasets.tables(mentions), mentions.schema, ("entity_id", *by_place)),
        layout.STATEMENTS: folder.table(datasets.tables(statements), statements.schema, ("relation_id", *by_place)),
        layout.SUMMARY_SOURCES: folder.table([sources], SUMMARY_SOURCES, ("entity_id", "cluster_id")),
    }


def _content_notes(
    tables: Mapping[str, pa.Table], arrays: Mapping[str, Vectors], cut: frozenset[str], base: Manifest | None = None
) -> dict[str, Any]:
    vectors = (arrays["vectors/entities"], arrays["vectors/chunks"])
    return content_notes(tables["documents"], tables["chunks"], tables["entities"], cut, vectors, base)


def _vector_arrays(
    datasets: DatasetStore,
    folder: SpillFile,
    tables: Mapping[str, pa.Table],
    entities: Dataset | VectorRows,
    chunks: Dataset | VectorRows,
    dim: int,
) -> dict[str, Vectors]:
    """Return the vectors of entities and chunks in the order of their tables."""
    return {
        "vectors/entities": _aligned(datasets, folder, entities, tables["entities"]["entity_id"], dim),
        "vectors/chunks": _aligned(datasets, folder, chunks, tables["chunks"]["chunk_id"], dim),
    }


def _part_arrays(
    datasets: DatasetStore, folder: SpillFile, vectors: Dataset, entity_ids: pa.ChunkedArray, dim: int
) -> dict[str, NDArray[Any]]:
    """Return the arrays of `layout.PART_ARRAYS`, sorted by (entity row, label set); none where there are no parts."""
    if not vectors.rows:
        return {}
    ids, matrix = vector_blocks(folder, datasets.tables(vectors), dim)
    owners, sets = part_rows(ids)
    rows, numbers = rows_of(owners, entity_ids), sets.to_numpy()
    order = np.lexsort((numbers, rows))
    return {
        layout.PARTS: folder.ordered(matrix, order),
        layout.PART_ENTITIES: rows[order].astype(np.int32),
        layout.PART_SETS: numbers[order].astype(np.int32),
    }


def _letter_tables(letters: pa.Table, drops: Drops) -> dict[str, pa.Table]:
    """Return `rejects`, and `dropped` where there are any."""
    rejects, dropped = split_letters(letters.sort_by([("stage", "ascending"), ("unit_id", "ascending")]), drops)
    return {"rejects": rejects} | ({DROPPED: dropped} if dropped.num_rows else {})


def _report_notes(tables: Mapping[str, pa.Table], choice: ReportChoice | None) -> dict[str, Any]:
    """Return the note about missing reports; empty where every community has one."""
    if choice is None:
        return {}
    letters = [tables[name] for name in ("rejects", DROPPED) if name in tables]
    known = [letter.filter(pc.equal(letter["stage"], WriteReports.name))["unit_id"] for letter in letters]
    ids = pa.chunked_array([part for column in (tables["reports"]["community_id"], *known) for part in column.chunks])
    n_missing = int(missing_reports(tables["communities"], ids, choice.min_entities).sum())
    return {MISSING_REPORTS: {"share": choice.share, "missing": n_missing}} if n_missing else {}


def stage_usage(usage: Mapping[str, UsageMeter]) -> pa.Table:
    """Return USAGE: the cost of the replies that a build rests on, whenever they were paid."""
    return usage_table({"stage": label} | row for label, meter in usage.items() for row in meter.rows())


def lineage(store: Store, communities: pa.Table) -> dict[str, str]:
    """Return community → the community of the current snapshot that it continues: Jaccard of members ≥ 0.5.

    Only communities whose id changed are listed.
    """
    before = _current(store)
    try:
        return {} if before is None else communities_continued(before.table("communities"), communities)
    except SnapshotError:
        return {}  # the snapshot before is damaged: nothing to continue


def _current(store: Store) -> Snapshot | None:
    """Return the current snapshot, the newest whole one where it is damaged, None where there is none."""
    try:
        return None if current_id(store) is None else open_current(store, warn=False)
    except SnapshotError:
        return None


def _aligned(
    datasets: DatasetStore, folder: SpillFile, vectors: Dataset | VectorRows, order: pa.ChunkedArray, dim: int
) -> Vectors:
    if isinstance(vectors, VectorRows):
        whole = stacked(vectors.blocks, lambda blocks: blocks[0] if len(blocks) == 1 else folder.matrix(blocks, dim))
        if order.equals(vectors.ids):
            return whole
        rows = rows_of(order, vectors.ids)
        return taken(whole, rows) if isinstance(whole, SlottedVectors) else folder.ordered(whole, rows)
    ids, matrix = vector_blocks(folder, datasets.tables(vectors), dim)
    return folder.ordered(matrix, rows_of(order, ids))
