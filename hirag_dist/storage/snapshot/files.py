"""Files of a snapshot that is being written: encoded, or copied from a base that has the same content.

A Parquet table is a function of its rows, whatever the base: it is written in row groups that depend on its rows only,
not on how it lies in memory. So a copy is what would be written. Of texts, vectors and the lexical index the
files depend on the base (`storage.serving.base_values`), and what is read from them does not.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hirag_dist._version import __version__
from hirag_dist.core.row_changes import one_piece
from hirag_dist.core.vectors import SlottedVectors
from hirag_dist.errors import HiragError, SnapshotCorrupt
from hirag_dist.storage.digest import HashingFile
from hirag_dist.storage.layout import CHANGED, CONTENT_TABLES, OPTIONAL_CONTENT, SLOTS, STORED, VECTORS
from hirag_dist.storage.serving.base_values import ARRAYS, BaseFiles, BaseValues, KeptRows, kept_rows
from hirag_dist.storage.serving.column_arrays import Batches
from hirag_dist.storage.serving.lexical import FREQUENCIES, LEXICAL_ARRAYS
from hirag_dist.storage.serving.writer import SERVING
from hirag_dist.storage.snapshot.divided_tables import (
    KEYS,
    ROW,
    divide,
    find_origin,
    may_be_divided,
    table_files,
)
from hirag_dist.storage.snapshot.manifest import FileEntry
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.storage.store import Store
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)
_GROUP_BYTES: Final = 64 << 20  # of the content of a row group, about
_DOCUMENT_BYTES: Final = 1 << 20  # the same of documents, whose texts are read one at a time
_MAX_GROUPS: Final = 1024  # about; their descriptions are read with each document
_MAX_GROUP_ROWS: Final = 1 << 18
_BLOCK_ROWS: Final = 1 << 15  # rows of vectors that are written at a time
_REPEATED: Final = ["kind", "type", "sources.list.element"]  # columns of few distinct values, for dictionaries
_WHOLE: Final = frozenset((*CONTENT_TABLES, *OPTIONAL_CONTENT))  # tables whose digest covers every column


class SnapshotFiles:
    """The files of one new snapshot.

    Attributes:
        entries: those written so far, by name.
    """

    def __init__(self, store: Store, folder: str, content: Mapping[str, str], base: Snapshot | None) -> None:
        """Prepare to write.

        Args:
            content: digest of each table and array.
            base: a snapshot of the same index; one of another version of hirag_dist is not used, since what is derived
                from the same content may differ.
        """
        self.entries: dict[str, FileEntry] = {}
        self._store = store
        self._folder = folder
        self._content = content
        self._comparing = threading.Lock()  # one table at a time: hashes of its keys and pieces of it are in memory
        usable = base is not None and base.store.uri == store.uri
        self._base = base if usable and base and base.manifest.hirag_dist == __version__ else None

    def table(self, name: str, table: pa.Table, *, keeps_rows: bool, origin: IntVector | None = None) -> None:
        """Write a table: all of its rows, or those that the base's file lacks.

        Args:
            keeps_rows: whether rows may stay in the file that the base, or a snapshot before it, wrote.
            origin: (n_rows,) row of each in the base's table, ascending; −1 for a new one and for one that changed.
                None: not known; the tables are compared.
        """
        was_divided = self._base is not None and name in self._base.manifest.divided_tables
        names = table_files(name) if was_divided else [f"{name}.parquet"]
        may_copy = name in _WHOLE and (keeps_rows or not was_divided) and self._has_same([name])
        if may_copy and self._all_linked(names, names):
            return
        group_bytes = _DOCUMENT_BYTES if name == "documents" else _GROUP_BYTES
        if not keeps_rows or not self._changed_rows(name, table, names[0], group_bytes, origin):
            with self.create(f"{name}.parquet") as file:
                write_parquet(table, file, group_bytes)

    def _changed_rows(
        self, name: str, table: pa.Table, stored: str, group_bytes: int, origin: IntVector | None
    ) -> bool:
        """Write the rows of a table that the base's file lacks, and copy that file; return whether that was possible.

        Args:
            stored: the file's name in the base.
        """
        if self._base is None or not may_be_divided(name, self._base.manifest.table_bytes(name)):
            return False
        try:
            columns = self._store.read_rows(f"{self._base.folder}/{stored}", 0, 0).schema.names
            if columns != table.schema.names:  # another version wrote the file
                return False
            division = self._base.division(name)
            if origin is None:
                keys, before = self._base.pieces(name, KEYS[name]), self._base.pieces(name)
                with self._comparing:
                    origin = find_origin(name, table, keys, before, division)
            found = None if origin is None else divide(origin, division)
        except HiragError as error:
            logger.info("%s is written again: %s", name, error)
            return False
        stored_file, changed_file, unused_file = table_files(name)
        if found is None or not self._linked(stored, stored_file):
            return False
        is_changed = np.zeros(table.num_rows, np.bool_)
        is_changed[found.changed] = True
        changed = table.filter(pa.array(is_changed)).append_column(ROW, pa.array(found.changed))
        for file_name, rows in ((changed_file, changed), (unused_file, pa.table({ROW: found.unused}))):
            with self.create(file_name) as file:
                write_parquet(rows, file, group_bytes)
        return True

    def array(self, name: str, array: NDArray[Any] | SlottedVectors, kept: Mapping[str, KeptRows]) -> None:
        """Write an array, or of a table in `kept` the rows that are not there already."""
        table = name.removeprefix("vectors/")
        if name in VECTORS.values() and table in kept:
            with self.create(f"vectors/{CHANGED}{table}.npy") as file:
                np.save(file, array[np.flatnonzero(kept[table].changed)], allow_pickle=False)
        elif not self.copied(f"{name}.npy", (name,)):
            with self.create(f"{name}.npy") as file:
                write_array(array, file)

    def kept_rows(
        self, values: BaseValues, batches: Batches, arrays: Mapping[str, NDArray[Any] | SlottedVectors]
    ) -> dict[str, KeptRows]:
        """Return the rows of tables that stay in files of the base; these files are copied."""
        if self._base is None or not values.has_base:
            return {}
        found = {}
        for table in SLOTS:
            if table == "chunks" and not values.has_lexical:
                continue  # its part of the index would be missing
            parts = [table, *([VECTORS[table]] if table in VECTORS else [])]
            if table not in self._base.manifest.slotted and self._has_same(parts):
                continue  # the files are copied as they are
            try:
                vectors = None
                if table in VECTORS:
                    before = self._base.entity_vectors if table == "entities" else self._base.chunk_vectors
                    vectors = (arrays[VECTORS[table]], before)
                kept = kept_rows(values, batches, table, vectors)
            except SnapshotCorrupt as error:
                logger.info("%s are written again: %s", table, error)
                continue
            if kept is not None and self._keep(table):
                found[table] = kept
        return found

    def _keep(self, table: str) -> bool:
        """Copy the files of a table that the base, or a snapshot before it, wrote: all, or none if one is damaged."""
        assert self._base is not None
        names = [f"{SERVING}/{table}.arrow", *([f"vectors/{table}.npy"] if table in VECTORS else [])]
        if table == "chunks":
            names += [f"{SERVING}/{name}.npy" for name in LEXICAL_ARRAYS]
        stored = [name.replace("/", f"/{STORED}") for name in names]
        sources = stored if table in self._base.manifest.slotted else names
        return self._base.manifest.files.keys() >= {*sources} and self._all_linked(sources, stored)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """Write a file piece by piece, and note its size and hash."""
        with self._store.create(f"{self._folder}/{name}", durable=False) as file:
            hashing = HashingFile(file)
            yield cast(BinaryIO, hashing)
        written = hashing.written
        self.entries[name] = FileEntry(bytes=written.size, sha256=written.sha256, blake3=written.blake3)

    def sync(self) -> None:
        """Make all files that were written durable, with their names."""
        self._store.sync(f"{self._folder}/{name}" for name in self.entries)

    def copied(self, name: str, parts: Sequence[str]) -> bool:
        """Copy a file of the base, if the tables and arrays that it is derived from have the same content there.

        A file of the base that was altered or removed is not copied.
        """
        if self._base is None or name not in self._base.manifest.files:
            return False
        return self._has_same(parts) and self._linked(name)

    def _has_same(self, parts: Sequence[str]) -> bool:
        """Return whether tables and arrays have the same content in the base."""
        if self._base is None:
            return False
        before = self._base.manifest.content
        return all(part in self._content and self._content[part] == before.get(part) for part in parts)

    def _linked(self, name: str, new_name: str = "") -> bool:
        """Copy a file of the base, under its own name or a new one, unless it was altered or removed."""
        assert self._base is not None
        entry, target = self._base.manifest.files[name], f"{self._folder}/{new_name or name}"
        try:
            self._store.copy(f"{self._base.folder}/{name}", target, durable=False)
            if self._store.size(target) != entry.bytes or not self._is_as_hashed(name, target):
                logger.warning("%s of %s was altered; it is written again", name, self._base.folder)
                self._store.delete(target)
                return False
        except HiragError as error:
            logger.info("%s is written again: %s", name, error)
            return False
        self.entries[new_name or name] = entry
        return True

    def _is_as_hashed(self, name: str, target: str) -> bool:
        """Return whether the copy of a file of the base is what was published.

        A link to a file that did not change since the base was opened and hashed is not hashed again.
        """
        assert self._base is not None
        if self._store.local is None:  # an object store checks what it copies
            return True
        if (self._store.local / target).stat().st_mtime_ns == self._base.hashed.get(name):
            return True
        return self._base.manifest.files[name].matches(self._store.read_blocks(target))

    def _all_linked(self, names: Sequence[str], new_names: Sequence[str]) -> bool:
        """Copy files of the base: all, or none if one was altered or removed."""
        if all(self._linked(*pair) for pair in zip(names, new_names, strict=True)):
            return True
        for name in new_names:
            if self.entries.pop(name, None) is not None:
                self._store.delete(f"{self._folder}/{name}")
        return False

    def base_values(self) -> BaseFiles | None:
        """Return the serving files of the base; None where there are none, or they cannot be read."""
        if self._base is None:
            return None
        try:
            folder = self._base.published_serving()
            if folder is None or not all(self._is_whole(f"{SERVING}/{name}.npy", folder) for name in ARRAYS):
                return None
            is_divided = f"{SERVING}/{FREQUENCIES}.npy" in self._base.manifest.files
            parts = (STORED, CHANGED) if is_divided else ("",)
            names = [f"{SERVING}/{part}{name}.npy" for part in parts for name in LEXICAL_ARRAYS]
            lexical = all(self._is_whole(name, folder) for name in names)
            return BaseFiles(folder, lexical=lexical, slotted=self._base.manifest.slotted)
        except HiragError as error:
            logger.info("serving files are derived without those of %s: %s", self._base.folder, error)
            return None

    def _is_whole(self, name: str, folder: Path) -> bool:
        """Return whether a file of the base, of which there is a copy in a folder, is as it was published."""
        assert self._base is not None
        if name not in self._base.manifest.files:
            return False
        try:
            data = (folder / Path(name).name).read_bytes()
        except OSError:
            return False
        whole = self._base.manifest.files[name].matches([data])
        if not whole:
            logger.warning("%s of %s was altered; no value is taken from it", name, self._base.folder)
        return whole


def write_array(array: NDArray[Any] | SlottedVectors, file: Any) -> None:
    """Write an array as `numpy.save` does; of vectors in two matrices a block is in memory."""
    if not isinstance(array, SlottedVectors):
        np.save(file, array, allow_pickle=False)
        return
    header = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(file, header)
    for first in range(0, len(array), _BLOCK_ROWS):
        file.write(array[first : first + _BLOCK_ROWS].data)


def write_parquet(table: pa.Table, file: Any, group_bytes: int = _GROUP_BYTES) -> None:
    """Write a table in row groups with about `group_bytes` of content, or more where there would be too many groups."""
    n_bytes = sum(map(_content_bytes, table.columns))
    n_rows = max(max(group_bytes, n_bytes // _MAX_GROUPS) * table.num_rows // max(n_bytes, 1), 1)
    n_rows = min(1 << (n_rows.bit_length() - 1), _MAX_GROUP_ROWS)
    with pq.ParquetWriter(file, table.schema, compression="zstd", use_dictionary=_REPEATED) as writer:
        for first in range(0, max(table.num_rows, 1), n_rows):
            writer.write_table(one_piece(table.slice(first, n_rows)), row_group_size=n_rows)


def _content_bytes(column: pa.ChunkedArray) -> int:
    """Return the size of the values of a column, without offsets and padding."""
    kind = column.type
    if pa.types.is_list(kind):
        return _content_bytes(pc.list_flatten(column)) + 4 * len(column)
    if pa.types.is_struct(kind):
        return sum(_content_bytes(pc.struct_field(column, at)) for at in range(kind.num_fields))
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return int(pc.sum(pc.binary_length(column)).as_py() or 0)
    return len(column) * int(kind.bit_width) // 8
