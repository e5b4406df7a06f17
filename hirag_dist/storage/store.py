"""Store of an index's files, in a local folder or an object store. Every write is atomic."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import tempfile
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from hirag_dist.config.object_stores import store_uri
from hirag_dist.errors import ConfigError, StoreError
from hirag_dist.storage.conditional_put import S3ConditionalPut
from hirag_dist.storage.digest import BLOCK_BYTES, HashingFile, WrittenFile
from hirag_dist.storage.file_locks import (
    FileLock,
    append_durably,
    link_or_copy,
    lock_file,
    make_folder,
    sync,
    sync_tree,
)
from hirag_dist.storage.store_errors import one_line_of, store_error, without_credentials

_TEMPORARY = ".tmp-"
_SPOOLED_BYTES = 16 << 20  # read at a time from an object store, where each read is a request
_GROUP_BYTES = 4 << 20  # of a row group, so that a task reads little more than the rows it needs
_MIN_GROUP_ROWS = 64
_PIECE_BYTES = 4 << 20  # uncompressed size of a piece, about
_PIECE_ROWS = 8_192  # maximum rows of a piece: malloc keeps its small blocks, and the system clears larger ones


@dataclass(frozen=True, slots=True)
class StoreEntry:
    """A file in a listing.

    Attributes:
        size: bytes.
        modified: seconds since the epoch, by the clock of the storage.
    """

    size: int
    modified: float


class Store:
    """One index folder. Paths are relative, with forward slashes.

    Where a method takes `durable`, it says whether what is written survives a power cut after the call. If not, the
    name may survive without the content.

    Attributes:
        uri: as it was given, without credentials.
        root: path in the file system.
        local: the folder on this machine, or None on an object store.
    """

    def __init__(self, uri: str) -> None:
        """Open a folder by path or URI. It need not exist yet.

        Raises:
            ConfigError: the URI is empty, or names no folder of a filesystem.
            StoreError: the filesystem cannot be reached.
        """
        if not uri.strip():  # a variable of the shell that is not set gives that
            raise ConfigError("the index is an empty text: name a folder or a URI, such as s3://BUCKET/index")
        self._appending = threading.Lock()  # two appends must not get the same offset
        self._opened = uri
        self.uri = without_credentials(uri)  # for messages
        if "://" in uri:
            try:
                self._fs, self.root = fs.FileSystem.from_uri(store_uri(uri))
            except (pa.ArrowInvalid, OSError, NotImplementedError, UnicodeDecodeError) as error:
                reason = one_line_of(error).replace(uri, self.uri)
                if isinstance(error, UnicodeDecodeError):
                    reason = "what its escapes such as %20 stand for is not UTF-8"
                kind = StoreError if isinstance(error, OSError) else ConfigError
                raise kind(f"cannot open {self.uri}: {reason}") from error
        else:
            self._fs, self.root = fs.LocalFileSystem(), str(Path(uri).absolute())
        self.root = self.root.rstrip("/")
        if not self.root:
            raise ConfigError(f"{uri} names no bucket and no folder: name one, such as s3://BUCKET/index")
        self.local = Path(self.root) if isinstance(self._fs, fs.LocalFileSystem) else None

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return (type(self), (self._opened if "://" in self._opened else self.root,))

    def exists(self, path: str) -> bool:
        """Return whether a file or folder exists."""
        with self._errors("look at", path):
            return bool(self._fs.get_file_info(self._full(path)).type != fs.FileType.NotFound)

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, None where there is no such file."""
        with self._errors("look at", path):
            info = self._fs.get_file_info(self._full(path))
        return int(info.size) if info.type == fs.FileType.File else None

    def names(self, folder: str) -> list[str]:
        """Return the names of files and folders in a folder, sorted; none where it does not exist."""
        return sorted(info.base_name for info in self._listed(folder) if _TEMPORARY not in info.base_name)

    def entries(self, folder: str) -> dict[str, StoreEntry]:
        """Return the files in a folder by name, in one listing; none where it does not exist."""
        return {
            info.base_name: StoreEntry(int(info.size), (info.mtime_ns or 0) / 1e9)
            for info in self._listed(folder)
            if info.type == fs.FileType.File and _TEMPORARY not in info.base_name
        }

    def walk(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, sorted, temporary ones too; none where it does not exist."""
        infos = self._listed(folder, recursive=True)
        return sorted(info.path.removeprefix(self.root).lstrip("/") for info in infos if info.type == fs.FileType.File)

    def _listed(self, folder: str, *, recursive: bool = False) -> list[fs.FileInfo]:
        """Return what is in a folder; nothing where it does not exist.

        Arrow looks whether a folder is there only after it could not list it, and fails where it was made in between.
        """
        selector = fs.FileSelector(self._full(folder), allow_not_found=True, recursive=recursive)
        with self._errors("list", folder):
            try:
                found: list[fs.FileInfo] = self._fs.get_file_info(selector)
            except FileNotFoundError:
                found = self._fs.get_file_info(selector)
            return found

    def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes."""
        with self._errors("read", path), self._fs.open_input_stream(self._full(path), compression=None) as stream:
            return bytes(stream.read())

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        """Return `length` bytes of a file from an offset."""
        with self._errors("read", path), self._fs.open_input_file(self._full(path)) as file:
            return bytes(file.read_at(length, offset))

    def read_json(self, path: str) -> Any:
        """Return the content of a JSON file."""
        try:
            return json.loads(self.read_bytes(path))
        except ValueError as error:
            raise StoreError(f"{self.uri}/{path} is damaged: {error}") from error

    def read_table(self, path: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a Parquet file, or some of its columns in the order given; `pq.read_table` would import pandas.

        One row group is read on one thread: starting others takes longer than decoding its few megabytes.
        """
        with self._parquet(path) as file:
            use_threads = file.num_row_groups > 1
            if columns is None:
                return file.read(use_threads=use_threads)
            _check_columns(file, columns)
            return file.read(list(columns), use_threads=use_threads).select(list(columns))

    def read_rows(self, path: str, start: int, stop: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return rows [start, stop) of a Parquet file, reading only the row groups that contain them.

        It reads on one thread: tasks read many small pieces, and there is a task for each processor.
        """
        groups: list[int] = []
        first = n_passed = 0
        with self._parquet(path) as file:
            for number in range(file.num_row_groups):
                n_rows = file.metadata.row_group(number).num_rows
                if n_passed < stop and n_passed + n_rows > start:
                    if not groups:
                        first = n_passed
                    groups.append(number)
                n_passed += n_rows
            return file.read_row_groups(groups, columns, use_threads=False).slice(start - first, stop - start)

    def count_rows(self, path: str) -> int:
        """Return the number of rows of a Parquet file."""
        with self._parquet(path) as file:
            return int(file.metadata.num_rows)

    def scan(self, path: str, columns: Sequence[str] | None, n_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield some columns of a Parquet file, or all, in batches of at most `n_rows`, one at a time in memory."""
        with self._parquet(path) as file:
            yield from file.iter_batches(n_rows, columns=None if columns is None else list(columns))

    def pieces(self, path: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield a Parquet file, or some columns, in small pieces, one in memory; an empty one as one piece."""
        with self._parquet(path) as file:
            _check_columns(file, columns or ())
            n_bytes = sum(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
            rows = max(min(_PIECE_BYTES * file.metadata.num_rows // max(n_bytes, 1), _PIECE_ROWS), 1)
            is_empty = True
            for batch in file.iter_batches(rows, columns=columns, use_threads=False):
                is_empty = False
                yield pa.Table.from_batches([batch if columns is None else batch.select(columns)])
            if is_empty:
                schema = file.schema_arrow
                yield (schema if columns is None else pa.schema(map(schema.field, columns))).empty_table()

    @contextmanager
    def _parquet(self, path: str) -> Iterator[pq.ParquetFile]:
        """Open a Parquet file; pages that have checksums are compared with them."""
        with (
            self._errors("read", path),
            pq.ParquetFile(self._full(path), filesystem=self._fs, page_checksum_verification=True) as file,
        ):
            yield file

    def sha256(self, path: str) -> str:
        """Return the SHA-256 (hex) of a file, read a block at a time."""
        digest = hashlib.sha256()
        for block in self.read_blocks(path):
            digest.update(block)
        return digest.hexdigest()

    def read_blocks(self, path: str) -> Iterator[pa.Buffer]:
        """Yield the bytes of a file block by block."""
        n_bytes = _SPOOLED_BYTES if self.local is None else BLOCK_BYTES
        with self._errors("read", path), self._fs.open_input_stream(self._full(path), compression=None) as stream:
            while (block := stream.read_buffer(n_bytes)).size:
                yield block

    def fetch(self, path: str, target: Path) -> None:
        """Copy a file to this machine, a block at a time."""
        with self._errors("read", path), target.open("wb") as file:
            for block in self.read_blocks(path):
                file.write(block)

    def copy(self, source: str, target: str, *, durable: bool = True) -> None:
        """Copy a file within the store, atomically and without sending its bytes through this process.

        In a local folder the target is a hard link where the filesystem has links: files of a snapshot never change.
        """
        with self._errors("copy", source):
            if self.local is None:
                self._fs.copy_file(self._full(source), self._full(target))
                return
            with self._atomic_target(target, durable) as temporary:
                link_or_copy(Path(self._full(source)), Path(temporary))
            Path(temporary).unlink(missing_ok=True)  # the rename of a link to the target's own file does nothing

    def sync(self, paths: Iterable[str]) -> None:
        """Make files durable that were written without it, with their names; on object stores they are already."""
        if self.local is not None:
            with self._errors("write", ""):
                sync_tree(self.local, (self.local / path for path in paths))

    def write_bytes(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """Write a file atomically: to a temporary name, then renamed; on object stores a put is atomic."""
        with (
            self._errors("write", path),
            self._atomic_target(path, durable) as target,
            self._fs.open_output_stream(target, compression=None) as stream,
        ):
            stream.write(data)

    def read_version(self, path: str) -> tuple[bytes, str] | None:
        """Return a file's bytes and version, for `replace`; None where there is no such file."""
        if self._conditional is not None:
            with self._errors("read", path):
                return self._conditional.read(path)
        try:
            data = self.read_bytes(path)
        except StoreError:
            if self.exists(path):
                raise
            return None
        return data, hashlib.sha256(data).hexdigest()

    def replace(self, path: str, data: bytes, version: str | None, *, durable: bool = False) -> str | None:
        """Write a file atomically if it still has the version that was read.

        On S3 the comparison and the write are one request. Elsewhere another process can write between the two: on a
        folder `BuildLock.fenced` excludes that; other filesystems of pyarrow have nothing that does.

        Args:
            version: None: write only where there is no such file.

        Returns:
            The new version; None, and nothing is written, where the file has another version.
        """
        with self._errors("write", path):
            if self._conditional is not None:
                return self._conditional.replace(path, data, version)
        current = self.read_version(path)
        if (current and current[1]) != version:
            return None
        self.write_bytes(path, data, durable=durable)
        return hashlib.sha256(data).hexdigest()

    @property
    def quoted(self) -> str:
        """The URI as a word of a shell, for commands in messages."""
        return shlex.quote(self.uri)

    @cached_property
    def _conditional(self) -> S3ConditionalPut | None:
        return S3ConditionalPut(self._fs, self.root) if isinstance(self._fs, fs.S3FileSystem) else None

    def write_json(self, path: str, value: Any, *, compact: bool = False, durable: bool = True) -> None:
        """Write a JSON file atomically, keys sorted; large ones compact, since Python encodes indented JSON slowly."""
        indent = None if compact else 1
        data = json.dumps(value, sort_keys=True, ensure_ascii=False, indent=indent).encode()
        self.write_bytes(path, data, durable=durable)

    def write_table(self, path: str, table: pa.Table) -> WrittenFile:
        """Write a Parquet file atomically, in small row groups and with a checksum of each page.

        `sync` makes it durable.
        """
        rows = max(table.num_rows * _GROUP_BYTES // max(table.nbytes, 1), _MIN_GROUP_ROWS)
        with self.create(path, durable=False) as sink:
            file = HashingFile(sink)
            pq.write_table(table, file, compression="zstd", row_group_size=rows, write_page_checksum=True)
        return file.written

    @contextmanager
    def create(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        """Write a file piece by piece. It exists, complete, after the block, unless the block failed."""
        if self.local is None:
            with tempfile.SpooledTemporaryFile(_SPOOLED_BYTES) as spool:  # closing an aborted upload would publish it
                yield cast(BinaryIO, spool)
                spool.seek(0)
                with self._errors("write", path):
                    self._upload(spool, self._full(path))
            return
        with self._errors("write", path), self._atomic_target(path, durable) as target, Path(target).open("wb") as file:
            yield file

    def _upload(self, source: IO[bytes], target: str) -> None:
        stream = self._fs.open_output_stream(target, compression=None)
        try:
            while piece := source.read(_SPOOLED_BYTES):
                stream.write(piece)
        except BaseException:
            with suppress(OSError):
                stream.close()
                self._fs.delete_file(target)
            raise
        stream.close()

    def try_lock(self, path: str, create: bool = False) -> FileLock | None:
        """Lock a file against other processes; None where another process has it or the file does not exist.

        A file that can be locked has no live writer: the system releases the lock of a killed process, on any machine
        that mounts the folder with locks. An object store has no appends, so every lock is granted there.
        """
        if self.local is None:
            return FileLock(None)
        with self._errors("lock", path):
            return lock_file(Path(self._full(path)), create)

    def sweep(self, folder: str, older_than_s: float) -> int:
        """Remove temporary files of killed processes in a local folder; return the bytes freed."""
        freed = 0
        if self.local is not None:
            with self._errors("sweep", folder):
                for file in (self.local / folder).glob(f"{_TEMPORARY}*"):
                    with suppress(FileNotFoundError):
                        status = file.stat()
                        if time.time() - status.st_mtime > older_than_s:
                            file.unlink()
                            freed += status.st_size
        return freed

    def append(self, path: str, data: bytes) -> tuple[str, int]:
        """Append bytes durably to a file that only this process writes; return their (file, offset).

        An object store has no appends: there the bytes become a file of their own.
        """
        with self._errors("write", path):
            if self.local is None:
                name = f"{path}-{uuid.uuid4().hex[:8]}"
                with self._fs.open_output_stream(self._full(name), compression=None) as stream:
                    stream.write(data)
                return name, 0
            full = Path(self._full(path))
            full.parent.mkdir(parents=True, exist_ok=True)
            with self._appending:
                return path, append_durably(full, data)

    def delete(self, path: str) -> None:
        """Remove a file or folder, if it exists."""
        with self._errors("remove", path):
            info = self._fs.get_file_info(self._full(path))
            if info.type == fs.FileType.Directory:
                self._fs.delete_dir(self._full(path))
            elif info.type == fs.FileType.File:
                self._fs.delete_file(self._full(path))

    def check_writable(self, purpose: str = "an index folder") -> None:
        """Raise StoreError where the folder is not writable, before any work is done."""
        probe = f".probe-{uuid.uuid4().hex[:8]}"
        try:
            self.write_bytes(probe, b"")
            self.delete(probe)
        except StoreError as error:
            why = str(error).partition(f"{probe}: ")[2] or str(error)
            raise StoreError(f"{self.uri} cannot be {purpose}: {why}; choose another") from error

    def _full(self, path: str) -> str:
        return f"{self.root}/{path}".rstrip("/") if path else self.root

    @contextmanager
    def _atomic_target(self, path: str, durable: bool = True) -> Iterator[str]:
        """Yield the name to write to; the file gets its own name after the block, durably where that is wanted."""
        full = self._full(path)
        if self.local is None:
            yield full
            return
        folder, name = Path(full).parent, Path(full).name
        if durable:
            make_folder(folder)
        else:
            folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f"{_TEMPORARY}{name}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        try:
            yield str(temporary)
            if durable:
                sync(temporary)  # before the rename: the name would survive without the content
            temporary.replace(full)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            sync(folder)

    @contextmanager
    def _errors(self, verb: str, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise store_error(error, verb, f"{self.uri}/{path}".rstrip("/")) from error


def _check_columns(file: pq.ParquetFile, columns: Sequence[str]) -> None:
    if missing := sorted({*columns} - {*file.schema_arrow.names}):
        raise pa.ArrowKeyError(f"it has no column {', '.join(missing)}")
