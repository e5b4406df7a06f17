"""Reading the files of datasets, compared with the hash that their marker recorded.

A file of a local index is hashed once in each process before it is read, and whenever a snapshot is published from it.
An object store checks what it keeps; there a file is hashed where reading it fails, and for publishing. Pages have
checksums too, which every read compares.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from hirag_dist.errors import HiragError, SnapshotCorrupt, StoreError, WorkFileDamaged
from hirag_dist.storage.layout import WORK
from hirag_dist.storage.store import Store

_MAX_VERIFIED = 1 << 20  # files that a process remembers to have compared
_verified: set[bytes] = set()


def read_part(store: Store, path: str, sha256: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a file of a dataset.

    Args:
        store: the index.
        path: of the file.
        sha256: as it was recorded; "" for files of earlier versions.
        columns: None for all.

    Raises:
        WorkFileDamaged: the file is gone, or is not what was written.
        SnapshotCorrupt: as above, for a file of a snapshot.
        StoreError: it cannot be read.
    """
    with _checked(store, path, sha256):
        return store.read_table(path, columns)


def read_part_rows(
    store: Store, path: str, sha256: str, start: int, stop: int, columns: Sequence[str] | None = None
) -> pa.Table:
    """Return rows [start, stop) of a file of a dataset; as `read_part`."""
    with _checked(store, path, sha256):
        return store.read_rows(path, start, stop, columns)


def part_pieces(store: Store, path: str, sha256: str) -> Iterator[pa.Table]:
    """Yield a file of a dataset in pieces, for publishing: it is hashed first, also a second time; as `read_part`."""
    if sha256 and is_damaged(store, path, sha256):
        raise _damaged(store, path)
    with _checked(store, path, sha256):
        yield from store.pieces(path)


def is_damaged(store: Store, path: str, sha256: str) -> bool:
    """Return whether a file is gone or is not what was written; False where that cannot be found out.

    Args:
        store, path: the file.
        sha256: as it was recorded; "": the file is damaged if it is no Parquet file.
    """
    try:
        if store.size(path) is None:
            return True
        if sha256:
            return store.sha256(path) != sha256
        for _ in store.pieces(path):
            pass
    except StoreError as error:
        cause = error.__cause__
        return not sha256 and not (isinstance(cause, OSError) and cause.errno is not None)
    return False


@contextmanager
def _checked(store: Store, path: str, sha256: str) -> Iterator[None]:
    if store.local is not None and sha256:
        _verify_once(store, path, sha256)
    try:
        yield
    except StoreError as error:
        if (sha256 or path.startswith(f"{WORK}/")) and is_damaged(store, path, sha256):
            raise _damaged(store, path) from error
        raise


def _verify_once(store: Store, path: str, sha256: str) -> None:
    known = hashlib.sha256(f"{store.root}\n{path}\n{sha256}".encode()).digest()
    if known in _verified:
        return
    if is_damaged(store, path, sha256):
        raise _damaged(store, path)
    if len(_verified) >= _MAX_VERIFIED:
        _verified.clear()
    _verified.add(known)


def _damaged(store: Store, path: str) -> HiragError:
    where = f"{store.uri}/{path}"
    if path.startswith(f"{WORK}/"):
        return WorkFileDamaged(f"{where} is damaged or gone", path)
    return SnapshotCorrupt(f"{where} was altered after it was written; build again or serve another snapshot")
