"""Where a snapshot's files are on this machine, so that they can be mapped.

The files of a local index are mapped where they are. Those of an object store are copied once into a cache folder
that the node's processes share. Serving files that a snapshot came without are derived into that cache; for a local
index it is beside the snapshots, where that can be written to.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from hirag_dist.errors import SnapshotCorrupt, StoreError
from hirag_dist.storage.layout import CACHE, snapshot_path
from hirag_dist.storage.serving.mmap_files import map_array
from hirag_dist.storage.serving.text_columns import BATCH_ROWS
from hirag_dist.storage.serving.writer import FILES, SERVING, write_serving
from hirag_dist.storage.snapshot.manifest import FileEntry, Manifest
from hirag_dist.storage.store import Store
from hirag_dist.types import FloatMatrix

logger = logging.getLogger(__name__)
HASHED_BYTES = 1 << 20  # files up to this size are checked by hash whenever they are opened
_HALF_MADE = ".tmp-"
_KEPT = 3  # cached snapshots of one index
_KEPT_S = 3600.0  # for how long after its last opening no cached snapshot is removed
_KEPT_SHORT = 2  # where there is no room for more: the one that is opened, and the one before it


class SnapshotCache:
    """The files of one snapshot, by their names in its manifest."""

    def __init__(
        self, store: Store, manifest: Manifest, cache_dir: str | None = None, cache_bytes: int | None = None
    ) -> None:
        """Name a place; nothing is copied yet.

        Args:
            cache_dir: for what is not there to be mapped; None: beside a local index, else a folder of this user's
                among the temporary ones.
            cache_bytes: of what is copied, that the folder may hold for all indexes together; None: what the disk does.
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
                if not _is_whole(cached, entry):  # else another process has copied it meanwhile
                    self._copy(name, entry, cached)
        return cached

    def serving(self) -> Path:
        """Return the folder of the serving files, made now where the snapshot came without them.

        Raises:
            SnapshotCorrupt: a table that they are made of cannot be read.
            StoreError: they cannot be written.
        """
        if all(f"{SERVING}/{name}" in self._manifest.files for name in FILES):
            own = [name for name in self._manifest.files if name.startswith(f"{SERVING}/")]
            return [self.path(name) for name in own][-1].parent
        made = self._cached() / SERVING
        if not _has_all(made):
            vectors, chunk_vectors = (map_array(self.path(f"vectors/{name}.npy")) for name in ("entities", "chunks"))
            with _locked(self._cached()):
                if not _has_all(made):
                    self._derive(vectors, chunk_vectors, made)
        return made

    def _copy(self, name: str, entry: FileEntry, target: Path) -> None:
        self._make_room(entry.bytes)
        target.parent.mkdir(parents=True, exist_ok=True)
        beside = target.with_name(f"{_HALF_MADE}{target.name}-{uuid.uuid4().hex[:8]}")
        try:
            self._store.fetch(f"{self._folder}/{name}", beside)
            if not _is_whole(beside, entry):
                raise SnapshotCorrupt(
                    f"{self._store.uri}/{self._folder}/{name} was altered after it was published; build again or "
                    "serve another snapshot"
                )
            beside.replace(target)
        except OSError as error:
            raise _unwritable(target.parent, error) from error
        finally:
            beside.unlink(missing_ok=True)

    def _derive(self, vectors: FloatMatrix, chunk_vectors: FloatMatrix, target: Path) -> None:
        started = time.perf_counter()
        beside = target.with_name(f"{_HALF_MADE}{target.name}-{uuid.uuid4().hex[:8]}")
        store = Store(str(beside))

        @contextmanager
        def create(name: str) -> Iterator[BinaryIO]:
            self._make_room(0)  # what was written before counts; how much comes is not known
            with store.create(name) as file:
                yield file

        try:
            write_serving(self._batches, vectors, chunk_vectors, create)
            self._make_room(0)
            shutil.rmtree(target, ignore_errors=True)  # somebody tidied up some of its files
            beside.rename(target)
        except pa.ArrowException as error:
            raise SnapshotCorrupt(
                f"{self._store.uri}/{self._folder} cannot be made ready: {error}; build again or serve another snapshot"
            ) from error
        except OSError as error:
            raise _unwritable(target.parent, error) from error
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        logger.info("made the serving files of %s in %.1f s: %s", self._folder, time.perf_counter() - started, target)

    def _batches(self, table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if f"{table}.parquet" in self._manifest.files:  # else an optional one
            yield from self._store.scan(f"{self._folder}/{table}.parquet", columns, BATCH_ROWS)

    def _cached(self) -> Path:
        """Return the snapshot's folder in the cache, and remove there what nobody has opened for long."""
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
        """See to it that so much more may be copied, if need be without snapshots from before the one in use.

        Raises:
            StoreError: there is no room.
        """
        if self._cache_bytes is None:
            return
        root = self._cached().parent if self._cache_dir is None else Path(self._cache_dir)
        if _bytes_of(root) + n_bytes > self._cache_bytes:
            _sweep(self._cached(), kept=_KEPT_SHORT, kept_s=0.0)
        held = _bytes_of(root)
        if held + n_bytes > self._cache_bytes:
            os.utime(self._cached(), (0, 0))  # what there is of it makes room first, before the snapshot in use
            raise StoreError(
                f"cache folder {root} has no room for {self._folder}: it holds {held:,} bytes, {n_bytes:,} more are "
                f"asked, and service.cache_bytes is {self._cache_bytes:,}; it holds the snapshot in use and the next"
            )

    def _cache_folder(self) -> Path:
        own = self._manifest.snapshot_id
        if self._cache_dir is not None:
            roots = [Path(self._cache_dir) / _key(self._store.uri)]
        else:
            roots = [user_cache() / _key(self._store.uri)]
            if self._store.local is not None:
                roots.insert(0, self._store.local / CACHE)
        failed: OSError | None = None
        for root in roots:
            folder = root / own
            try:
                folder.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryFile(dir=folder):
                    return folder
            except OSError as error:
                failed = error
        assert failed is not None
        raise _unwritable(roots[-1] / own, failed) from failed


def user_cache() -> Path:
    """Return this user's cache folder, which nobody else can write to.

    Raises:
        StoreError: somebody else owns the place.
    """
    folder = Path(tempfile.gettempdir()) / f"hirag-dist-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError as error:
        raise _unwritable(folder, error) from error
    if found.st_uid != os.getuid() or found.st_mode & 0o022 or folder.is_symlink():
        raise StoreError(f"{folder} belongs to somebody else or is open to others; set service.cache_dir to a folder")
    return folder


def _key(uri: str) -> str:
    return hashlib.sha256(uri.encode()).hexdigest()[:16]


def _is_whole(path: Path, entry: FileEntry) -> bool:
    try:
        if path.stat().st_size != entry.bytes:
            return False
        return entry.bytes > HASHED_BYTES or hashlib.sha256(path.read_bytes()).hexdigest() == entry.sha256
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
    """Hold a folder against the other processes that would fill it; the system lets go for one that dies.

    What such a one left half made goes first: nobody else writes there, and a service that is killed again and again
    while it copies would fill the disk.
    """
    with ExitStack() as stack:
        try:
            held = _hold(folder)
            assert held is not None
            stack.enter_context(held)
            for left in list(folder.rglob(f"{_HALF_MADE}*")):
                if left.is_dir():
                    shutil.rmtree(left)
                else:
                    left.unlink(missing_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from error
        yield


def _hold(folder: Path, *, wait: bool = True) -> BinaryIO | None:
    """Return a folder's lock file, locked until it is closed; None where another process has it and `wait` is not set.

    Raises:
        OSError: it cannot be made or locked.
    """
    path = folder.with_name(f".{folder.name}.lock")
    while True:
        file = path.open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            if os.fstat(file.fileno()).st_ino == path.stat().st_ino:
                return file
        except BlockingIOError:
            file.close()
            return None
        except FileNotFoundError:
            pass
        except BaseException:
            file.close()
            raise
        file.close()  # it was swept between our opening and our locking: another one holds the folder's name now


def _bytes_of(folder: Path) -> int:
    """Return what the files of a folder take."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # swept meanwhile
            total += path.lstat().st_size if not path.is_dir() else 0
    return total


def _sweep(used: Path, *, kept: int = _KEPT, kept_s: float = _KEPT_S) -> None:
    """Remove cached snapshots beside the one in use, and none that is being filled.

    Processes that have mapped their files keep them.

    Args:
        kept: snapshots that stay, those opened last.
        kept_s: for how long after its last opening none is removed.
    """

    def opened(folder: Path) -> float:
        try:
            return folder.stat().st_mtime
        except FileNotFoundError:  # swept by another process
            return 0.0

    folders = sorted((path for path in used.parent.iterdir() if path.is_dir()), key=opened, reverse=True)
    for folder in folders[kept:]:
        if folder != used and time.time() - opened(folder) >= kept_s and (held := _hold(folder, wait=False)):
            with held:
                shutil.rmtree(folder, ignore_errors=True)
                folder.with_name(f".{folder.name}.lock").unlink(missing_ok=True)
