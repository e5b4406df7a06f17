"""Snapshots with some tables replaced: what an index would be after updates that went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.indexing.publish import ARRAYS
from hirag_dist.storage.layout import OPTIONAL_CONTENT, PART_ARRAYS, TABLES, UPDATE_TABLES
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot


def altered(
    snapshot: Snapshot,
    tables: Mapping[str, pa.Table],
    notes: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Write the snapshot with other tables or arrays, and without update state but that given here, and open it."""
    before = snapshot.manifest
    names = [name for name in (*ARRAYS, *PART_ARRAYS) if f"{name}.npy" in before.files]
    kept = {*TABLES, *OPTIONAL_CONTENT} - {*UPDATE_TABLES}
    given = {name: snapshot.table(name) for name in before.counts if name in kept} | dict(tables)
    manifest = write_snapshot(
        snapshot.store,
        {name: table.cast(getattr(schemas, name.upper())) for name, table in given.items()},
        {name: snapshot.array(name) for name in names} | dict(arrays or {}),
        embedder=before.embedder,
        complete=True,
        build=before.build,
        notes=dict(notes or {}),
    )
    return open_snapshot(snapshot.store, manifest.snapshot_id)
