"""Opening a snapshot: checked, tables read when they are asked for, arrays mapped into memory."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist import schemas
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.vectors import SlottedVectors, Vectors
from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound, StoreError
from hirag_dist.storage.digest import BLOCK_BYTES
from hirag_dist.storage.layout import (
    BUILD,
    CHANGED,
    CURRENT,
    MANIFEST,
    OPTIONAL_TABLES,
    PARTS,
    SLOTS,
    SNAPSHOTS,
    STORED,
    TABLES,
    VECTORS,
    pointer_id,
    snapshot_path,
)
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.serving.checks import array_fault
from hirag_dist.storage.serving.mmap_files import ServingFiles, damaged, map_array
from hirag_dist.storage.serving.text_columns import are_rows
from hirag_dist.storage.serving.writer import SERVING
from hirag_dist.storage.snapshot.cache import HASHED_BYTES, SnapshotCache
from hirag_dist.storage.snapshot.divided_tables import (
    TableDivision,
    pieces_of_table,
    read_division,
    rows_of_table,
    table_files,
)
from hirag_dist.storage.snapshot.manifest import MISSING_REPORTS_COUNT, Manifest, parse_manifest
from hirag_dist.storage.store import Store
from hirag_dist.types import CsrGraph, IndexInfo

_SCHEMAS: dict[str, pa.Schema] = {name: getattr(schemas, name.upper()) for name in (*TABLES, *OPTIONAL_TABLES)}
logger = logging.getLogger(__name__)
_VECTORS = (*(f"vectors/{part}{table}" for part in ("", STORED, CHANGED) for table in VECTORS), PARTS)
_THREADS = 2  # that hash files; on an object store each waits for its own
_ADDED = {"documents": ("source_ids",)}  # list columns that the first snapshots lack: empty there


class HashCheck:
    """Compares the hashes of large mapped files with the manifest in the background; opening compares their sizes.

    A file that differs is logged as an error: answers from it may be wrong.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Start a thread, unless every file was hashed at opening."""
        self._stop = threading.Event()
        files = snapshot.manifest.files
        large = [name for name, entry in files.items() if entry.bytes > HASHED_BYTES and not name.endswith(".parquet")]
        if large:
            args = (snapshot, large)
            threading.Thread(target=self._check, args=args, name="hash-check", daemon=True).start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()

    def _check(self, snapshot: Snapshot, names: Sequence[str]) -> None:
        for name in names:
            try:
                with snapshot.local_path(name).open("rb") as file:
                    blocks = iter(lambda: b"" if self._stop.is_set() else file.read(BLOCK_BYTES), b"")
                    is_whole = snapshot.manifest.files[name].matches(blocks)
            except (OSError, StoreError) as error:
                logger.warning("%s/%s cannot be checked: %s", snapshot.folder, name, error)
                continue
            if self._stop.is_set():
                return
            if not is_whole:
                logger.error(
                    "%s/%s/%s was altered after it was published, and answers from it may be wrong: build again or "
                    "serve another snapshot",
                    snapshot.store.uri,
                    snapshot.folder,
                    name,
                )


class CurrentPointer(NamedTuple):
    """The file `current`: the snapshot being served, and the version of the file for a conditional write."""

    snapshot_id: str | None
    version: str | None


def read_current(store: Store) -> CurrentPointer:
    """Return the pointer to the snapshot being served; both fields are None where nothing is published.

    The id is "" where the file is damaged.
    """
    found = store.read_version(CURRENT)
    if found is None:
        return CurrentPointer(None, None)
    return CurrentPointer(pointer_id(found[0]), found[1])


def current_id(store: Store) -> str | None:
    """Return the id of the snapshot being served, None where nothing is published, "" where `current` is damaged."""
    return pointer_id(store.read_bytes(CURRENT)) if store.exists(CURRENT) else None


class Snapshot:
    """An open snapshot.

    Attributes:
        fallback: why the current snapshot cannot be read, if this one is used in its place; else "".
        hashed: local files that were compared with their hashes at opening → time of their last change, in nanoseconds.
    """

    def __init__(
        self, store: Store, manifest: Manifest, cache_dir: str | None = None, cache_bytes: int | None = None
    ) -> None:
        self.store = store
        self.manifest = manifest
        self.folder = snapshot_path(manifest.snapshot_id)
        self.fallback = ""
        self.hashed: Mapping[str, int] = {}
        self._cache = SnapshotCache(store, manifest, cache_dir, cache_bytes)

    def cached_in(self, cache_dir: str | None, cache_bytes: int | None = None) -> Snapshot:
        """Return the same snapshot with another folder for copied and derived files, as `SnapshotCache` takes it."""
        cached = Snapshot(self.store, self.manifest, cache_dir, cache_bytes)
        cached.fallback = self.fallback
        return cached

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a table, or some of its columns, read again at each call."""
        expected = _SCHEMAS[name]
        if columns is not None:
            expected = pa.schema([expected.field(column) for column in columns])
        if name in OPTIONAL_TABLES and name not in self.manifest.counts:
            return expected.empty_table()
        is_divided = self._is_divided(name)
        path = f"{self.folder}/{table_files(name)[0] if is_divided else f'{name}.parquet'}"
        new = [column for column in expected.names if column in _ADDED.get(name, ())]
        try:
            if new:
                present = self.store.read_rows(path, 0, 0).schema.names
                new = [column for column in new if column not in present]
            kept = [column for column in expected.names if column not in new]
            if is_divided:
                table = pa.concat_tables(pieces_of_table(self.store, self.folder, name, kept))
            else:
                table = self.store.read_table(path, kept)
        except StoreError as error:
            raise SnapshotCorrupt(f"{error}; build again or serve another snapshot") from error
        return self._current_form(name, table, expected)

    def _current_form(self, name: str, table: pa.Table, expected: pa.Schema) -> pa.Table:
        """Return a table of the snapshot, or a part of it, with the columns that it is older than."""
        for column in _ADDED.get(name, ()):
            if column in expected.names and column not in table.column_names:
                position = expected.get_field_index(column)
                empty = pa.array([[]] * table.num_rows, expected.field(column).type)
                table = table.add_column(position, expected.field(column), empty)
        if not table.schema.equals(expected):
            missing = sorted(set(expected.names) - set(table.schema.names))
            raise SnapshotCorrupt(f"{self.folder}/{name}.parquet lacks {', '.join(missing) or 'the right types'}")
        return table

    def pieces(self, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a table of the snapshot, or some of its columns, in small pieces, at least one, one in memory."""
        schema = _SCHEMAS[name]
        if columns is not None:
            schema = pa.schema([schema.field(column) for column in columns])
        yield schema.empty_table()
        try:
            if self._is_divided(name):
                pieces = pieces_of_table(self.store, self.folder, name, columns)
            else:
                pieces = self.store.pieces(f"{self.folder}/{name}.parquet", columns)
            for piece in pieces:
                yield self._current_form(name, piece, schema)
        except StoreError as error:
            raise SnapshotCorrupt(f"{error}; build again or serve another snapshot") from error

    def _is_divided(self, name: str) -> bool:
        """Return whether the rows of a table lie in two files; `write_whole` may have ended that since the opening."""
        changed_file = f"{self.folder}/{table_files(name)[1]}"
        return name in self.manifest.divided_tables and self.store.exists(changed_file)

    def division(self, name: str) -> TableDivision:
        """Return how the rows of a table are divided between the files of the snapshot."""
        if name in self.manifest.divided_tables:
            return read_division(self.store, self.folder, name)
        return TableDivision(self.manifest.counts[name], np.zeros(0, np.int64), np.zeros(0, np.int64))

    def document_text(self, row: int) -> str:
        """Return the text of one document. Raises StoreError where the table cannot be read."""
        if self._is_divided("documents"):
            rows = rows_of_table(self.store, self.folder, "documents", row, row + 1, ["text"])
        else:
            rows = self.store.read_rows(f"{self.folder}/documents.parquet", row, row + 1, ["text"])
        text: str = rows["text"][0].as_py()
        return text

    def local_path(self, name: str) -> Path:
        """Return a file of the snapshot on this machine, copied there first from an object store."""
        return self._cache.path(name)

    def array(self, name: str) -> NDArray[Any]:
        """Return an array, mapped from its file and checked."""
        try:
            array = map_array(self._cache.path(f"{name}.npy"))
        except StoreError as error:
            raise SnapshotCorrupt(f"{error}; build again or serve another snapshot") from error
        fault = array_fault(name, array, self._size)
        if not fault and name in _VECTORS and array.shape[1] != self.manifest.dim:
            fault = f"expected {self.manifest.dim} columns, got {array.shape[1]}"
        if fault:
            raise damaged(f"{self.folder}/{name}.npy", fault)
        return array

    def vectors(self, table: str) -> Vectors:
        """Return (n_rows, dim) vectors of the rows of a table, `entities` or `chunks`, mapped and checked."""
        if table not in self.manifest.slotted:
            return self.array(f"vectors/{table}")
        stored, changed = (self.array(f"vectors/{part}{table}") for part in (STORED, CHANGED))
        name = f"{SERVING}/{SLOTS[table]}.npy"  # published with the vectors, even where other serving files are derived
        slots = map_array(self._cache.path(name))
        fault = array_fault(SLOTS[table], slots, self._size)
        if not fault and not are_rows(slots, len(stored) + len(changed)):
            fault = "expected numbers of rows"
        if fault:
            raise damaged(f"{self.folder}/{name}", fault)
        return SlottedVectors(stored, changed, slots)

    def _size(self, name: str) -> int:
        """Return the rows of a table, of an array or of a file of texts."""
        if name in self.manifest.counts:
            return self.manifest.counts[name]
        return self.serving.size(name) if "/" not in name else len(map_array(self._cache.path(f"{name}.npy")))

    @cached_property
    def serving(self) -> ServingFiles:
        """The serving files, derived now where the snapshot has none.

        Raises:
            SnapshotCorrupt: a table that they are derived from cannot be read.
            StoreError: there is no room for them.
        """
        slotted = frozenset[str]() if self._cache.published_serving() is None else self.manifest.slotted
        return ServingFiles(self._cache.serving(), self.manifest.counts, slotted)

    def published_serving(self) -> Path | None:
        """Return the folder of the serving files that were published with the snapshot, None where there are none.

        Raises:
            SnapshotCorrupt: a file was altered or is gone.
            StoreError: there is no room for copies of them.
        """
        return self._cache.published_serving()

    @cached_property
    def graph(self) -> CsrGraph:
        """The graph over rows of `entities`."""
        return CsrGraph(*(self.array(f"graph/{part}") for part in ("indptr", "indices", "weights", "relation_rows")))

    @cached_property
    def entity_vectors(self) -> Vectors:
        """(n_entities, dim)."""
        return self.vectors("entities")

    @cached_property
    def chunk_vectors(self) -> Vectors:
        """(n_chunks, dim)."""
        return self.vectors("chunks")

    @cached_property
    def has_labels(self) -> bool:
        """True if any document carries an access label."""
        lengths = pc.list_value_length(self.table("documents", ["labels"])["labels"])
        return bool((pc.max(lengths).as_py() or 0) > 0)

    def info(self) -> IndexInfo:
        """Return the statistics that need none of the large tables."""
        levels = self.table("communities", ["level"])["level"].to_pylist()
        missing = {MISSING_REPORTS_COUNT: n} if (n := self.manifest.missing_reports) else {}
        return IndexInfo(
            snapshot_id=self.manifest.snapshot_id,
            created_at=self.manifest.created_at,
            complete=self.manifest.complete,
            counts=dict(self.manifest.counts) | missing,
            layers=tuple(self.table("layers").to_pylist()),
            communities_by_level={level: levels.count(level) for level in sorted(set(levels))},
            embedder=self.manifest.embedder,
            dim=self.manifest.dim,
            fallback=self.fallback,
        )


def no_index(store: Store) -> SnapshotNotFound:
    """Return the error for a folder without a published snapshot, which says what its first build is doing."""
    if BuildLock(store).is_held():
        state = (
            f"holds no index yet: a build is under way; `hirag-dist status --index {store.quoted}` shows its progress "
            "once its first stage has begun"
        )
    elif store.exists(BUILD) and not store.names(SNAPSHOTS):
        state = (
            f"holds no index yet: its first build did not finish; `hirag-dist status --index "
            f"{store.quoted}` shows why, "
            "and the same `hirag-dist index` command continues it"
        )
    else:
        state = f"holds no index; build one with `hirag-dist index INPUT --index {store.quoted}`"
    return SnapshotNotFound(f"{store.uri} {state}")


def open_snapshot(store: Store, snapshot_id: str | None = None, full_check: bool = False) -> Snapshot:
    """Open a snapshot, the current one by default, after checking it.

    The quick check compares every file's size with the manifest, and the hashes of files up to 1 MiB; the full
    check hashes them all.

    Raises:
        SnapshotNotFound: nothing is published, or no such snapshot.
        SnapshotCorrupt: a file is missing, short or altered.
        SnapshotTooNew: a later version wrote it.
    """
    chosen = snapshot_id or current_id(store)
    if chosen is None:
        raise no_index(store)
    if not chosen:
        raise SnapshotCorrupt(
            f"{store.uri}/{CURRENT} is damaged and names no snapshot; write the id of one into it, or build again"
        )
    folder = snapshot_path(chosen)
    if not store.exists(f"{folder}/{MANIFEST}"):
        state = "was never finished" if store.exists(folder) else "is not there"
        raise SnapshotNotFound(
            f"snapshot {chosen} of {store.uri} {state}; `hirag-dist status --index {store.quoted}` lists those that are"
        )
    manifest = parse_manifest(store.read_bytes(f"{folder}/{MANIFEST}"), f"{store.uri}/{folder}")
    if manifest.snapshot_id != chosen:
        raise SnapshotCorrupt(f"{store.uri}/{folder} is damaged: its manifest is of {manifest.snapshot_id}")
    snapshot = Snapshot(store, manifest)
    snapshot.hashed = _check_files(store, folder, manifest, full_check)
    return snapshot


def _check_files(store: Store, folder: str, manifest: Manifest, full_check: bool) -> dict[str, int]:
    """Compare files with their sizes and hashes; return `Snapshot.hashed`."""
    listed = {name.rpartition("/")[0] for name in manifest.files}
    found = {part: store.entries(f"{folder}/{part}".rstrip("/")) for part in listed}  # a listing, not a call a file
    hashed = []
    for name, entry in manifest.files.items():
        part, _, file = name.rpartition("/")
        stored = found[part].get(file)
        if stored is None or stored.size != entry.bytes:
            wrong = (
                "is missing" if stored is None else f"has {count_noun(stored.size, 'byte')} instead of {entry.bytes}"
            )
            raise SnapshotCorrupt(f"{store.uri}/{folder}/{name} {wrong}; build again or serve another snapshot")
        if full_check or entry.bytes <= HASHED_BYTES:
            hashed.append(name)
    changed_at: dict[str, int] = {}
    if store.local is not None:
        with suppress(FileNotFoundError):  # hashing it says so
            changed_at |= {name: (store.local / folder / name).stat().st_mtime_ns for name in hashed}
    is_small = store.local is not None and sum(manifest.files[name].bytes for name in hashed) <= HASHED_BYTES
    with ThreadPoolExecutor(_THREADS) as threads:
        on_each = map if is_small else threads.map  # to give a thread a small file takes longer than to hash it
        checks = on_each(lambda name: manifest.files[name].matches(store.read_blocks(f"{folder}/{name}")), hashed)
        for name, is_whole in zip(hashed, checks, strict=True):
            if not is_whole:
                raise SnapshotCorrupt(
                    f"{store.uri}/{folder}/{name} was altered after it was published; build again or serve another "
                    "snapshot"
                )
    return changed_at
