"""Publishing: tables and arrays become a snapshot, and `current` names it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from blake3 import blake3
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist._version import __version__
from hirag_dist.core.retrieval.lexical import LexicalIndexBuilder
from hirag_dist.core.row_changes import one_piece
from hirag_dist.core.vectors import SlottedVectors
from hirag_dist.errors import IndexBusy, SnapshotCorrupt
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.layout import (
    CHANGED,
    CONTENT_TABLES,
    CURRENT,
    DROPPED,
    FORMAT_VERSION,
    MANIFEST,
    OPTIONAL_CONTENT,
    SLOTS,
    STORED,
    UNUSED,
    VECTORS,
    read_files_path,
    snapshot_path,
)
from hirag_dist.storage.serving.base_values import BaseValues
from hirag_dist.storage.serving.lexical import FREQUENCIES, LEXICAL_ARRAYS, map_lexical
from hirag_dist.storage.serving.text_columns import BATCH_ROWS, write_texts
from hirag_dist.storage.serving.writer import SERVING, write_serving
from hirag_dist.storage.snapshot.files import SnapshotFiles
from hirag_dist.storage.snapshot.history import record_current
from hirag_dist.storage.snapshot.manifest import BLAKE3, Manifest, compute_snapshot_id
from hirag_dist.storage.snapshot.reader import CurrentPointer, Snapshot, current_id, open_snapshot, read_current
from hirag_dist.storage.store import Store
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)
_THREADS = 2  # files written at the same time; each has a piece of a table in memory
_DIGEST_ROWS = 1 << 15  # rows of an array that are hashed at a time
Array = NDArray[Any] | SlottedVectors


def write_snapshot(
    store: Store,
    tables: Mapping[str, pa.Table],
    arrays: Mapping[str, Array],
    *,
    embedder: str,
    complete: bool,
    build: Mapping[str, Any],
    notes: Mapping[str, Any],
    base: Snapshot | None = None,
    keeps_rows: bool = True,
    origins: Mapping[str, IntVector] = MappingProxyType({}),
) -> Manifest:
    """Write a snapshot and return its manifest; an existing one with the same id is left unchanged if it is whole.

    A damaged one is written again, file by file and its manifest last: what has mapped a file keeps the former one.

    Args:
        tables: every table of `layout.TABLES`, and the optional ones that apply: `dropped` for accepted losses,
            `aliases` for resolved names, `claims`, and `layout.LABEL_TABLES` for documents with labels.
        arrays: path without ending ("graph/indptr", "vectors/entities") → array.
        base: a snapshot of the same index, which saves work where its content is the same; what is read from the
            files is the same without it.
        keeps_rows: whether rows may stay in files of the base, beside others that the new snapshot does not have.
            False where a document was removed: no trace of it may be left.
        origins: table → (n_rows,) row of each in the base's table, ascending; −1 for a new one and for one that
            changed. Other tables are compared with the base's.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        content = _digests(pool, tables, arrays)
        dim = int(arrays["vectors/entities"].shape[1])
        snapshot_id = compute_snapshot_id(content, embedder, dim)
        folder = snapshot_path(snapshot_id)
        existing = _whole(store, snapshot_id)
        if existing is not None:
            if existing.is_divided and snapshot_id != current_id(store):
                write_whole(store, snapshot_id)  # no former text of a document comes back with it
                return open_snapshot(store, snapshot_id).manifest
            return existing
        files = SnapshotFiles(store, folder, content, base)
        values = BaseValues(files.base_values())
        kept = files.kept_rows(values, partial(_batches, tables), arrays) if keeps_rows else {}
        jobs = [pool.submit(files.array, name, array, kept) for name, array in arrays.items()]
        jobs += [
            pool.submit(files.table, name, table, keeps_rows=keeps_rows, origin=origins.get(name))
            for name, table in tables.items()
        ]
        try:
            for job in as_completed(jobs):
                job.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        pa.default_memory_pool().release_unused()
        write_serving(  # after the others, since it needs most memory
            partial(_batches, tables),
            len(arrays["vectors/entities"]),
            lambda name: files.create(f"{SERVING}/{name}"),
            values,
            lambda name, parts: files.copied(f"{SERVING}/{name}", parts),
            kept,
        )
    files.sync()  # before the manifest, which vouches for them
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        snapshot_id=snapshot_id,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        hirag_dist=__version__,
        complete=complete,
        dim=dim,
        embedder=embedder,
        counts={name: table.num_rows for name, table in tables.items()},
        content=content,
        build=build,
        notes=notes,
        files={name: files.entries[name] for name in sorted(files.entries)},
    )
    store.write_bytes(f"{folder}/{MANIFEST}", manifest.model_dump_json(indent=1).encode())
    _remove_unlisted(store, manifest)
    return manifest


def _remove_unlisted(store: Store, manifest: Manifest) -> list[str]:
    """Remove files in the folder of a snapshot that its manifest does not list, and return their names.

    Earlier files of the same snapshot are among them: of a write that was killed, or of another base.
    """
    folder = snapshot_path(manifest.snapshot_id)
    known = {f"{folder}/{name}" for name in manifest.files}
    known |= {f"{folder}/{MANIFEST}", read_files_path(manifest.snapshot_id)}
    gone = [path for path in store.walk(folder) if path not in known]
    for path in gone:
        store.delete(path)
    return [path.removeprefix(f"{folder}/") for path in gone]


def write_whole(store: Store, snapshot_id: str) -> list[str]:
    """Give a snapshot files of its own in the place of those with rows that are not part of it.

    The new files have other names than the former ones, and the manifest names them from one moment to the next: a kill
    leaves the snapshot whole, and what has mapped former files keeps them. Files that an earlier, killed run left are
    removed too. Memory: one table of the snapshot.

    Returns:
        The names of the files that were removed.
    """
    snapshot = open_snapshot(store, snapshot_id)
    manifest = snapshot.manifest
    if manifest.is_divided:
        files = SnapshotFiles(store, snapshot.folder, {}, None)
        for name in manifest.divided_tables:
            files.table(name, snapshot.table(name).cast(getattr(schemas, name.upper())), keeps_rows=False)
        for table in manifest.slotted:
            texts = snapshot.serving.texts(f"{table}.arrow")
            blocks = (texts.table(texts.schema.names, at, at + BATCH_ROWS) for at in range(0, texts.n_rows, BATCH_ROWS))
            with files.create(f"{SERVING}/{table}.arrow") as file:
                write_texts(file, texts.schema, (batch for block in blocks for batch in block.to_batches()))
            if table in VECTORS:
                files.array(VECTORS[table], snapshot.vectors(table), {})
        if f"{SERVING}/{FREQUENCIES}.npy" in manifest.files:
            n_chunks, parts = manifest.counts["chunks"], map_lexical(snapshot.serving)
            index: Sequence[NDArray[Any]] = LexicalIndexBuilder().built(n_chunks, parts, np.arange(n_chunks))
            for name, array in zip(LEXICAL_ARRAYS, index, strict=True):
                files.array(f"{SERVING}/{name}", array, {})
        files.sync()
        entries = {name: entry for name, entry in manifest.files.items() if not _holds_some_rows(name)} | files.entries
        changes = {"format_version": FORMAT_VERSION, "files": {name: entries[name] for name in sorted(entries)}}
        manifest = manifest.model_copy(update=changes)
        store.write_bytes(f"{snapshot.folder}/{MANIFEST}", manifest.model_dump_json(indent=1).encode())
    return _remove_unlisted(store, manifest)


def _holds_some_rows(name: str) -> bool:
    """Return whether a file holds some rows of a table, or says which."""
    own = name.rpartition("/")[2]
    return own.startswith((STORED, CHANGED, UNUSED)) or own.removesuffix(".npy") in {*SLOTS.values(), FREQUENCIES}


def _whole(store: Store, snapshot_id: str) -> Manifest | None:
    """Return the manifest of a snapshot if it exists and no file is damaged."""
    if not store.exists(f"{snapshot_path(snapshot_id)}/{MANIFEST}"):
        return None
    try:
        return open_snapshot(store, snapshot_id, full_check=store.local is not None).manifest
    except SnapshotCorrupt as error:
        logger.warning("snapshot %s is written again: %s", snapshot_id, error)
        return None


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
    if store.replace(CURRENT, f"{snapshot_id}\n".encode(), before.version, durable=True) is None:
        raise IndexBusy(
            f"another process has written {CURRENT} of {store.uri} meanwhile: {snapshot_id} is published and not "
            "served; run the command again"
        )
    record_current(store, made=True)


def _batches(tables: Mapping[str, pa.Table], name: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    table = tables.get(name)
    if table is not None:
        for first in range(0, table.num_rows, BATCH_ROWS):
            yield from one_piece(table.select(columns).slice(first, BATCH_ROWS)).to_batches()


def _digests(pool: ThreadPoolExecutor, tables: Mapping[str, pa.Table], arrays: Mapping[str, Array]) -> dict[str, str]:
    """Return the digest of each table and array that is content."""
    whole = [*CONTENT_TABLES, *(name for name in OPTIONAL_CONTENT if name in tables)]
    letters = [name for name in ("rejects", DROPPED) if name in tables]  # missing units are content too
    digested = [tables[name] for name in whole] + [tables[name].select(["stage", "unit_id"]) for name in letters]
    found = [pool.submit(table_digest, table) for table in digested]
    found += [pool.submit(_array_digest, array) for array in arrays.values()]
    names = [*whole, *letters, *arrays]
    return {name: f"{BLAKE3}{future.result()}" for name, future in zip(names, found, strict=True)}


def _array_digest(array: Array) -> str:
    digest = blake3(f"{array.dtype.str}{array.shape}".encode())
    for first in range(0, len(array), _DIGEST_ROWS):
        digest.update(np.ascontiguousarray(array[first : first + _DIGEST_ROWS]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
