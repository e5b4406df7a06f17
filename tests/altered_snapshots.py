"""Snapshots with some tables replaced: what an index would be after updates that went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from hirag_dist import schemas
from hirag_dist.indexing.publish import ARRAYS
from hirag_dist.storage.layout import CONTENT_TABLES, OPTIONAL_CONTENT, UPDATE_TABLES
from hirag_dist.storage.snapshot.reader import Snapshot, open_snapshot
from hirag_dist.storage.snapshot.writer import write_snapshot


def altered(
    snapshot: Snapshot,
    tables: Mapping[str, pa.Table],
    notes: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> Snapshot:
    """Write the snapshot with other tables or arrays, and without update state but that given here, and open it."""
    kept = (*CONTENT_TABLES, "usage", "rejects", *OPTIONAL_CONTENT)
    present = {
        name: snapshot.table(name) for name in kept if name in snapshot.manifest.counts and name not in UPDATE_TABLES
    }
    given = {name: table.cast(getattr(schemas, name.upper())) for name, table in (present | dict(tables)).items()}
    manifest = write_snapshot(
        snapshot.store,
        given,
        {name: snapshot.array(name) for name in ARRAYS} | dict(arrays or {}),
        embedder=snapshot.manifest.embedder,
        complete=True,
        build=snapshot.manifest.build,
        notes=dict(notes or {}),
    )
    return open_snapshot(snapshot.store, manifest.snapshot_id)
