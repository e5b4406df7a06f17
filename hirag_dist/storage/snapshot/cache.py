"""Local files of a snapshot, for memory mapping.

The files of a local index are mapped in place. Those of an object store are copied once into a cache folder that the
node's processes share. Serving files that a snapshot lacks are derived into that cache; the cache of a local index is a
folder of the index, if it is writable.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from hirag_dist.errors import SnapshotCorrupt, StoreError
from hirag_dist.storage.digest import BLOCK_BYTES
from hirag_dist.storage.file_locks import FileLock, lock_file
from hirag_dist.storage.layout import CACHE, STORED, snapshot_path
from hirag_dist.storage.serving.text_columns import BATCH_ROWS
from hirag_dist.storage.serving.writer import FILES, SERVING, write_serving
from hirag_dist.storage.snapshot.divided_tables import pieces_of_table
from hirag_dist.storage.snapshot.manifest import FileEntry, Manifest
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
HASHED_BYTES = 1 << 20  # files up to this size are checked by hash whenever they are opened
_TEMPORARY = ".tmp-"
_MAX_SNAPSHOTS = 3  # of one index in the cache
_MIN_SNAPSHOTS = 2  # where the cache is full: the one in use, and the one before it
_MIN_AGE_S = 3600.0  # since its last opening, before a snapshot is removed


class SnapshotCache:
    """The files of one snapshot, by their names in its manifest."""

    def __init__(
        self, store: Store, manifest: Manifest, cache_dir: str | None = None, cache_bytes: int | None = None
    ) -> None:
        """Describe a cache; nothing is copied yet.

        Args:
            cache_dir: folder for copied and derived files; None: a folder of a local index, else a temporary folder of
                this user.
            cache_bytes: of that folder, for all indexes together; None: no limit.
        """
        self._store = store
        self._manifest = manifest
        self._cache_dir = cache_dir
        self._cache_bytes = cache_bytes
        self._folder = snapshot_path(manifest.snapshot_id)
        self._cache: Path | None = None

    def path(self, name: str) -> Path:
        """Return a file of the snapshot on this machine.

        Raises:
            SnapshotCorrupt: the manifest has no such file, or it was altered.
            StoreError: it cannot be copied.
        """
        entry = self._manifest.files.get(name)
        if entry is None:
            raise SnapshotCorrupt(f"{self._store.uri}/{self._folder} has no {name}; build again or serve another")
        if self._store.local is not None:
            return self._store.local / self._folder / name
        cached = self._cached() / name
        if not _is_whole(cached, entry):
            with _locked(self._cached()):
                if not _is_whole(cached, entry):  # another process may have copied it meanwhile
                    self._copy(name, entry, cached)
        return cached

    def serving(self) -> Path:
        """Return the folder of the serving files, derived now where the snapshot has none.

        Raises:
            SnapshotCorrupt: a table that they are derived from cannot be read.
            StoreError: they cannot be written.
        """
        if (published := self.published_serving()) is not None:
            return published
        derived = self._cached() / SERVING
        if not _has_all(derived):
            with _locked(self._cached()):
                if not _has_all(derived):
                    self._derive(derived)
        return derived

    def published_serving(self) -> Path | None:
        """Return the folder of the serving files that were published with the snapshot, None where there are none."""
        published = [name for name in self._manifest.files if name.startswith(f"{SERVING}/")]
        if not {*FILES} <= {name.removeprefix(f"{SERVING}/").removeprefix(STORED) for name in published}:
            return None
        return [self.path(name) for name in published][-1].parent

    def _copy(self, name: str, entry: FileEntry, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f"{_TEMPORARY}{target.name}-{uuid.uuid4().hex[:8]}")
        try:
            if not self._link(name, entry, temporary):
                self._make_room(entry.bytes)
                self._store.fetch(f"{self._folder}/{name}", temporary)
            if not _is_whole(temporary, entry):
                raise SnapshotCorrupt(
                    f"{self._store.uri}/{self._folder}/{name} was altered after it was published; build again or "
                    "serve another snapshot"
                )
            temporary.replace(target)
        except OSError as error:
            raise _unwritable(target.parent, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _link(self, name: str, entry: FileEntry, target: Path) -> bool:
        """Link the same file of another snapshot in the cache; return whether there is one."""
        cached = self._cached().parent
        for other in [*cached.glob(f"*/{name}"), *cached.glob(f"*/{name.replace(STORED, '')}")]:
            with suppress(OSError):  # another process removes it, or there are no links on this filesystem
                if entry.bytes > HASHED_BYTES and other.stat().st_size == entry.bytes:
                    target.hardlink_to(other)
                    with target.open("rb") as file:
                        if entry.matches(iter(partial(file.read, BLOCK_BYTES), b"")):
                            return True
                    target.unlink()
        return False

    def _derive(self, target: Path) -> None:
        started = time.perf_counter()
        temporary = target.with_name(f"{_TEMPORARY}{target.name}-{uuid.uuid4().hex[:8]}")
        store = Store(str(temporary))

        @contextmanager
        def create(name: str) -> Iterator[BinaryIO]:
            self._make_room(0)  # for the files so far; the size of the next one is unknown
            with store.create(name) as file:
                yield file

        try:
            write_serving(self._batches, self._manifest.counts["entities"], create)
            self._make_room(0)
            shutil.rmtree(target, ignore_errors=True)  # a part of its files was deleted by hand
            temporary.rename(target)
        except pa.ArrowException as error:
            raise SnapshotCorrupt(
                f"{self._store.uri}/{self._folder} cannot be made ready: {error}; build again or serve another snapshot"
            ) from error
        except OSError as error:
            raise _unwritable(target.parent, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        took_s = time.perf_counter() - started
        logger.info("derived the serving files of %s in %.1f s: %s", self._folder, took_s, target)

    def _batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if table in self._manifest.divided_tables:
            for piece in pieces_of_table(self._store, self._folder, table, columns):
                yield from piece.to_batches()
        elif f"{table}.parquet" in self._manifest.files:  # absent: an optional table
            yield from self._store.scan(f"{self._folder}/{table}.parquet", columns, BATCH_ROWS)

    def _cached(self) -> Path:
        """Return the snapshot's folder in the cache; the first call removes snapshots that were long unused."""
        if self._cache is None:
            folder = self._cache_folder()
            try:
                os.utime(folder)
                _sweep(folder)
            except OSError as error:
                raise _unwritable(folder, error) from error
            self._cache = folder
        return self._cache

    def _make_room(self, n_bytes: int) -> None:
        """Make room for a copy, if need be by removing older snapshots from the cache. Raises StoreError."""
        if self._cache_bytes is None:
            return
        root = self._cached().parent if self._cache_dir is None else Path(self._cache_dir)
        if _bytes_of(root) + n_bytes > self._cache_bytes:
            _sweep(self._cached(), max_snapshots=_MIN_SNAPSHOTS, min_age_s=0.0)
        used_bytes = _bytes_of(root)
        if used_bytes + n_bytes > self._cache_bytes:
            os.utime(self._cached(), (0, 0))  # the incomplete copy is then the first to be removed
            raise StoreError(
                f"cache folder {root} has no room for {self._folder}: it holds {used_bytes:,} bytes, {n_bytes:,} more "
                f"are asked, and service.cache_bytes is {self._cache_bytes:,}; it must hold the snapshot in use and "
                "the next"
            )

    def _cache_folder(self) -> Path:
        if self._cache_dir is not None:
            roots = [Path(self._cache_dir) / _key(self._store.uri)]
        else:
            roots = [user_cache() / _key(self._store.uri)]
            if self._store.local is not None:
                roots.insert(0, self._store.local / CACHE)
        failed: OSError | None = None
        own = self._manifest.snapshot_id
        if self._manifest.slotted:  # its files depend on its base, which may be another one when it is published again
            hashes = "".join(entry.sha256 for _, entry in sorted(self._manifest.files.items()))
            own += f"-{hashlib.sha256(hashes.encode()).hexdigest()[:8]}"
        for root in roots:
            folder = root / own
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return folder
            except OSError as error:
                failed = error
        assert failed is not None
        raise _unwritable(roots[-1] / self._manifest.snapshot_id, failed) from failed


def user_cache() -> Path:
    """Return this user's cache folder. Raises StoreError where another user owns it or can write to it."""
    folder = Path(tempfile.gettempdir()) / f"hirag-dist-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise _unwritable(folder, error) from error
    if status.st_uid != os.getuid() or status.st_mode & 0o022 or folder.is_symlink():
        raise StoreError(f"{folder} belongs to another user or is open to others; set service.cache_dir to a folder")
    return folder


def cached_folders(store: Store, snapshot_id: str, cache_dir: str | None = None) -> list[Path]:
    """Return the folders on this machine, outside the index, that hold copied or derived files of a snapshot."""
    roots = [Path(tempfile.gettempdir()) / f"hirag-dist-{os.getuid()}", *([Path(cache_dir)] if cache_dir else [])]
    folders = [folder for root in roots for folder in (root / _key(store.uri)).glob(f"{snapshot_id}*")]
    return [folder for folder in folders if folder.is_dir()]


def _key(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:16]


def _is_whole(path: Path, entry: FileEntry) -> bool:
    try:
        if path.stat().st_size != entry.bytes:
            return False
        return entry.bytes > HASHED_BYTES or entry.matches([path.read_bytes()])
    except OSError:
        return False


def _has_all(folder: Path) -> bool:
    return all((folder / name).exists() for name in FILES)


def _unwritable(folder: Path, error: OSError) -> StoreError:
    return StoreError(
        f"cannot write to the cache folder {folder}: {error.strerror or error}; set service.cache_dir to a folder that "
        "can be written to"
    )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder against other processes that would fill it; the system releases the lock of a killed process.

    Temporary files that a killed process left are removed first: otherwise a service that is killed repeatedly while it
    copies would fill the disk.
    """
    with ExitStack() as stack:
        try:
            lock = _lock(folder)
            assert lock is not None  # it was waited for
            stack.callback(lock.release)
            for left in list(folder.rglob(f"{_TEMPORARY}*")):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield


def _lock(folder: Path, *, wait: bool = True) -> FileLock | None:
    """Lock a folder; None where another process has it locked and `wait` is not set."""
    return lock_file(folder.with_name(f".{folder.name}.lock"), create=True, wait=wait)


def _bytes_of(folder: Path) -> int:
    """Return the total size of the files of a folder; one with several names counts once."""
    sizes = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # removed meanwhile
            status = path.lstat()
            if not path.is_dir():
                sizes[status.st_ino] = status.st_size
    return sum(sizes.values())


def _sweep(used: Path, *, max_snapshots: int = _MAX_SNAPSHOTS, min_age_s: float = _MIN_AGE_S) -> None:
    """Remove cached snapshots of the same index, except the one in use and those being filled.

    Processes that have mapped their files keep them.

    Args:
        max_snapshots: that stay, those opened last.
        min_age_s: since its last opening, before a snapshot is removed.
    """

    def opened(folder: Path) -> float:
        try:
            return folder.stat().st_mtime
        except FileNotFoundError:  # removed by another process
            return 0.0

    folders = sorted((path for path in used.parent.iterdir() if path.is_dir()), key=opened, reverse=True)
    for folder in folders[max_snapshots:]:
        if folder != used and time.time() - opened(folder) >= min_age_s and (lock := _lock(folder, wait=False)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.with_name(f".{folder.name}.lock").unlink(missing_ok=True)
            lock.release()
