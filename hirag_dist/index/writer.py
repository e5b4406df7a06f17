"""Publishing: tables and arrays become a snapshot, and `current` names it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hirag_dist
from hirag_dist.index.digest import table_digest
from hirag_dist.index.layout import (
    ALIASES,
    CONTENT_TABLES,
    CURRENT,
    DROPPED,
    FORMAT_VERSION,
    LABEL_TABLES,
    MANIFEST,
    snapshot_path,
)
from hirag_dist.index.manifest import FileEntry, Manifest, parse_manifest, snapshot_id
from hirag_dist.index.store import Store


def write_snapshot(
    store: Store,
    tables: Mapping[str, pa.Table],
    arrays: Mapping[str, NDArray[Any]],
    *,
    embedder: str,
    complete: bool,
    build: Mapping[str, Any],
    notes: Mapping[str, Any],
) -> Manifest:
    """Write a snapshot and return its manifest; one that is there already with this id is left as it is.

    Args:
        tables: every table of `layout.TABLES`, `dropped` where losses were accepted, `aliases` where names were
            resolved to one entity, those of `layout.LABEL_TABLES` where documents carry labels.
        arrays: path without ending ("graph/indptr", "vectors/entities") → array.
    """
    content = {name: table_digest(tables[name]) for name in CONTENT_TABLES}
    content["rejects"] = table_digest(tables["rejects"].select(["stage", "unit_id"]))  # what is missing is content too
    if DROPPED in tables:
        content[DROPPED] = table_digest(tables[DROPPED].select(["stage", "unit_id"]))
    content |= {name: table_digest(tables[name]) for name in (ALIASES, *LABEL_TABLES) if name in tables}
    content |= {name: _array_digest(array) for name, array in arrays.items()}
    dim = int(arrays["vectors/entities"].shape[1])
    own_id = snapshot_id(content, embedder, dim)
    folder = snapshot_path(own_id)
    if store.exists(f"{folder}/{MANIFEST}"):
        return parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), folder)
    files: dict[str, FileEntry] = {}
    for name, table in tables.items():
        buffer = io.BytesIO()
        pq.write_table(table, buffer, compression="zstd")
        files[f"{name}.parquet"] = _put(store, f"{folder}/{name}.parquet", buffer.getvalue())
    for name, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        files[f"{name}.npy"] = _put(store, f"{folder}/{name}.npy", buffer.getvalue())
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        snapshot_id=own_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        hirag_dist=hirag_dist.__version__,
        complete=complete,
        dim=dim,
        embedder=embedder,
        counts={name: table.num_rows for name, table in tables.items()},
        content=content,
        build=build,
        notes=notes,
        files=files,
    )
    store.write_bytes(f"{folder}/{MANIFEST}", manifest.model_dump_json(indent=1).encode())
    return manifest


def make_current(store: Store, own_id: str) -> None:
    """Go live: name the snapshot that is served from now on."""
    store.write_bytes(CURRENT, f"{own_id}\n".encode())


def _put(store: Store, path: str, data: bytes) -> FileEntry:
    store.write_bytes(path, data)
    return FileEntry(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def _array_digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
