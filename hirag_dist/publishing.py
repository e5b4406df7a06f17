"""Datasets of a finished build → one snapshot; a snapshot with losses accepted since → another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.core.communities import lineage as communities_continued
from hirag_dist.core.graph import build_graph, rows_of
from hirag_dist.errors import SnapshotError
from hirag_dist.execution.letters import Drops, split_letters
from hirag_dist.execution.run import Dataset, Run
from hirag_dist.index import layout
from hirag_dist.index.layout import ALIASES, CLAIMS, CONTENT_TABLES, DROPPED, OPTIONAL_CONTENT, PART_ARRAYS
from hirag_dist.index.manifest import Manifest
from hirag_dist.index.reader import current_id, open_snapshot
from hirag_dist.index.store import Store
from hirag_dist.index.writer import write_snapshot
from hirag_dist.pool.metering import Meter
from hirag_dist.schemas import REJECTS, SUMMARY_SOURCES, USAGE
from hirag_dist.stages.access import part_rows
from hirag_dist.stages.embed import vector_matrix, vector_rows

ARRAYS = (
    "graph/indptr",
    "graph/indices",
    "graph/weights",
    "graph/relation_rows",
    "vectors/entities",
    "vectors/chunks",
)


@dataclass(frozen=True)
class Labelled:
    """What tells apart what documents of several label sets say.

    Attributes:
        entity_mentions, statements: the mentions of the entities and relations that several label sets speak of.
        summary_sources: the clusters behind each summary entity.
        part_vectors: VECTORS of what each label set says of such an entity, by `stages.access.part_rows`.
    """

    entity_mentions: Dataset
    statements: Dataset
    summary_sources: Dataset
    part_vectors: Dataset


@dataclass(frozen=True)
class Parts:
    """Everything that a snapshot is made of, as datasets."""

    documents: Dataset
    chunks: Dataset
    entities: Dataset
    relations: Dataset
    clusters: Dataset
    layers: pa.Table
    communities: Dataset
    reports: Dataset
    rejects: Dataset
    entity_vectors: Dataset
    chunk_vectors: Dataset
    aliases: Dataset
    claims: Dataset
    labelled: Labelled | None = None


def publish(run: Run, parts: Parts, *, embedder: str, dim: int, build: Mapping[str, Any]) -> Manifest:
    """Write the snapshot of a build; going live is left to the caller.

    Tables are read whole here: about 5 GB of text and vectors together on a machine of 16 GiB.
    """
    tables = {
        "documents": run.read(parts.documents).sort_by("document_id"),
        "chunks": run.read(parts.chunks).sort_by([("document_id", "ascending"), ("position", "ascending")]),
        "entities": run.read(parts.entities).sort_by([("layer", "ascending"), ("entity_id", "ascending")]),
        "relations": run.read(parts.relations).sort_by("relation_id"),
        "clusters": run.read(parts.clusters).sort_by(
            [("layer", "ascending"), ("cluster_id", "ascending"), ("entity_id", "ascending")]
        ),
        "layers": parts.layers,
        "communities": run.read(parts.communities),
        "reports": run.read(parts.reports).sort_by([("level", "ascending"), ("community_id", "ascending")]),
        "usage": usage_table(run.usage),
    }
    if parts.aliases.rows:
        tables[ALIASES] = run.read(parts.aliases).sort_by("name_key")
    if parts.claims.rows:
        tables[CLAIMS] = run.read(parts.claims).sort_by("claim_id")
    tables |= _letter_tables(run.read(parts.rejects), run.drops)
    tables = {name: table.combine_chunks() for name, table in tables.items()}
    graph = build_graph(tables["entities"]["entity_id"], tables["relations"])
    arrays: dict[str, NDArray[Any]] = {
        "graph/indptr": graph.indptr,
        "graph/indices": graph.indices,
        "graph/weights": graph.weights,
        "graph/relation_rows": graph.relation_rows,
        "vectors/entities": _aligned(run.read(parts.entity_vectors), tables["entities"]["entity_id"], dim),
        "vectors/chunks": _aligned(run.read(parts.chunk_vectors), tables["chunks"]["chunk_id"], dim),
    }
    if parts.labelled is not None:
        tables |= _label_tables(run, parts.labelled)
        arrays |= _part_arrays(run.read(parts.labelled.part_vectors), tables["entities"]["entity_id"], dim)
    return write_snapshot(
        run.store,
        tables,
        arrays,
        embedder=embedder,
        complete=tables["rejects"].num_rows == 0,
        build=build,
        notes={"lineage": lineage(run.store, tables["communities"])},
    )


def republish(store: Store, own_id: str, drops: Drops) -> Manifest:
    """Write a snapshot again with the losses that were accepted since. Its content is the same, dead letters aside.

    Raises:
        SnapshotError: it cannot be opened.
    """
    before = open_snapshot(store, own_id)
    # Parquet names the items of lists otherwise, and the id is a hash of types too.
    tables = {name: before.table(name).cast(getattr(schemas, name.upper())) for name in (*CONTENT_TABLES, "usage")}
    for name in OPTIONAL_CONTENT:
        if name in before.manifest.counts:
            tables[name] = before.table(name).cast(getattr(schemas, name.upper()))
    letters = pa.concat_tables([before.table("rejects"), before.table(DROPPED).select(REJECTS.names)])
    tables |= _letter_tables(letters, drops)
    return write_snapshot(
        store,
        tables,
        {name: before.array(name) for name in (*ARRAYS, *PART_ARRAYS) if name in before.manifest.content},
        embedder=before.manifest.embedder,
        complete=tables["rejects"].num_rows == 0,
        build=before.manifest.build,
        notes=before.manifest.notes,
    )


def _label_tables(run: Run, labelled: Labelled) -> dict[str, pa.Table]:
    """Return the tables of `layout.LABEL_TABLES`, each sorted; empty ones too: that there is nothing is told."""
    by_place = [("chunk_id", "ascending"), ("position", "ascending")]
    sources = run.read(labelled.summary_sources).group_by(SUMMARY_SOURCES.names).aggregate([])
    tables = {
        layout.ENTITY_MENTIONS: run.read(labelled.entity_mentions).sort_by([("entity_id", "ascending"), *by_place]),
        layout.STATEMENTS: run.read(labelled.statements).sort_by([("relation_id", "ascending"), *by_place]),
        layout.SUMMARY_SOURCES: sources.cast(SUMMARY_SOURCES).sort_by(
            [("entity_id", "ascending"), ("cluster_id", "ascending")]
        ),
    }
    return {name: table.combine_chunks() for name, table in tables.items()}


def _part_arrays(vectors: pa.Table, entity_ids: pa.ChunkedArray, dim: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of `layout.PART_ARRAYS`, sorted by (entity row, label set); none where there are no parts."""
    if not vectors.num_rows:
        return {}
    owners, sets = part_rows(vectors["id"])
    rows, numbers = rows_of(owners, entity_ids), sets.to_numpy()
    order = np.lexsort((numbers, rows))
    return {
        layout.PARTS: vector_rows(vectors, dim, order),
        layout.PART_ENTITIES: rows[order].astype(np.int32),
        layout.PART_SETS: numbers[order].astype(np.int32),
    }


def _letter_tables(letters: pa.Table, drops: Drops) -> dict[str, pa.Table]:
    """Return `rejects`, and `dropped` where there are any."""
    rejects, dropped = split_letters(letters.sort_by([("stage", "ascending"), ("unit_id", "ascending")]), drops)
    return {"rejects": rejects} | ({DROPPED: dropped} if dropped.num_rows else {})


def usage_table(usage: Mapping[str, Meter]) -> pa.Table:
    """Return USAGE: what the replies that a build rests on cost, whenever they were paid."""
    rows = [
        {"stage": label} | {name: row[name] for name in USAGE.names if name != "stage"}
        for label, meter in usage.items()
        for row in meter.rows()
    ]
    return pa.Table.from_pylist(rows, USAGE)


def lineage(store: Store, communities: pa.Table) -> dict[str, str]:
    """Return community → the community of the current snapshot that it continues: Jaccard of members ≥ 0.5.

    Only communities whose id changed are listed.
    """
    before = current_id(store)
    if before is None:
        return {}
    try:
        old = open_snapshot(store, before).table("communities")
    except SnapshotError:
        return {}  # the snapshot before is damaged: nothing to continue
    return communities_continued(old, communities)


def _aligned(vectors: pa.Table, order: pa.ChunkedArray, dim: int) -> NDArray[np.float32]:
    matrix = vector_matrix(vectors, dim)
    if not len(order):
        return np.zeros((0, dim), np.float32)
    return matrix[rows_of(order, vectors["id"])]
