"""Publishing: tables and arrays become a snapshot, and `current` names it."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import hirag_dist
from hirag_dist.errors import IndexBusy
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.layout import (
    CONTENT_TABLES,
    CURRENT,
    DROPPED,
    FORMAT_VERSION,
    MANIFEST,
    OPTIONAL_CONTENT,
    snapshot_path,
)
from hirag_dist.storage.serving.text_columns import BATCH_ROWS
from hirag_dist.storage.serving.writer import SERVING, write_serving
from hirag_dist.storage.snapshot.history import record_current
from hirag_dist.storage.snapshot.manifest import FileEntry, Manifest, compute_snapshot_id, parse_manifest
from hirag_dist.storage.snapshot.reader import CurrentPointer, read_current
from hirag_dist.storage.store import Store


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
    """Write a snapshot and return its manifest; an existing one with the same id is left unchanged.

    Args:
        tables: every table of `layout.TABLES`, and the optional ones that apply: `dropped` for accepted losses,
            `aliases` for resolved names, `claims`, and `layout.LABEL_TABLES` for documents with labels.
        arrays: path without ending ("graph/indptr", "vectors/entities") → array.
    """
    content = {name: table_digest(tables[name]) for name in CONTENT_TABLES}
    content["rejects"] = table_digest(tables["rejects"].select(["stage", "unit_id"]))  # missing units are content too
    if DROPPED in tables:
        content[DROPPED] = table_digest(tables[DROPPED].select(["stage", "unit_id"]))
    content |= {name: table_digest(tables[name]) for name in OPTIONAL_CONTENT if name in tables}
    content |= {name: _array_digest(array) for name, array in arrays.items()}
    dim = int(arrays["vectors/entities"].shape[1])
    snapshot_id = compute_snapshot_id(content, embedder, dim)
    folder = snapshot_path(snapshot_id)
    if store.exists(f"{folder}/{MANIFEST}"):
        return parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), folder)
    files: dict[str, FileEntry] = {}
    create = partial(_creating, store, folder, files)
    for name, table in tables.items():
        with create(f"{name}.parquet") as file:
            pq.write_table(table, file, compression="zstd")
    for name, array in arrays.items():
        with create(f"{name}.npy") as file:
            np.save(file, array, allow_pickle=False)
    write_serving(
        lambda name, columns: _batches(tables.get(name), columns),
        arrays["vectors/entities"],
        arrays["vectors/chunks"],
        lambda name: create(f"{SERVING}/{name}"),
    )
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
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


def make_current(store: Store, snapshot_id: str, before: CurrentPointer | None = None) -> None:
    """Go live: name the snapshot that is served from now on, and note since when.

    Args:
        before: the pointer as it was read before the build's lock was checked; None: read now.

    Raises:
        IndexBusy: the pointer is another one by now, so this build was taken over after its check.
    """
    if before is None:
        before = read_current(store)
    record_current(store)  # an entry for a `current` that was written by hand
    if store.replace(CURRENT, f"{snapshot_id}\n".encode(), before.version) is None:
        raise IndexBusy(
            f"another process has written {CURRENT} of {store.uri} meanwhile: {snapshot_id} is published and not "
            "served; run the command again"
        )
    record_current(store, made=True)


def _batches(table: pa.Table | None, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    if table is not None:
        yield from table.select(columns).to_batches(max_chunksize=BATCH_ROWS)


@contextmanager
def _creating(store: Store, folder: str, files: dict[str, FileEntry], name: str) -> Iterator[BinaryIO]:
    """Write a file piece by piece, and note its size and hash."""
    with store.create(f"{folder}/{name}") as file:
        counting = _Counting(file)
        yield cast(BinaryIO, counting)
    files[name] = FileEntry(bytes=counting.size, sha256=counting.digest.hexdigest())


class _Counting(io.RawIOBase):
    """Hashes what passes through to a file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.size = 0
        self.digest = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._file.write(data)
        self.digest.update(data)
        n_bytes = memoryview(data).nbytes
        self.size += n_bytes
        return n_bytes

    def tell(self) -> int:
        return self.size


def _array_digest(array: NDArray[Any]) -> str:
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()
