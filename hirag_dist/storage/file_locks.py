"""Locks on local files between processes."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

from hirag_dist.storage.durability import sync


class FileLock:
    """A lock of this process on a file, until `release` or the end of the process."""

    def __init__(self, descriptor: int | None) -> None:
        self._close = weakref.finalize(self, os.close, descriptor) if descriptor is not None else lambda: None

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        self._close()


def lock_file(file: Path, create: bool, *, wait: bool = False) -> FileLock | None:
    """Lock a file against every other process; None where another process has it or the file does not exist.

    Args:
        create: create an empty file where there is none.
        wait: wait for another process to release it.

    Raises:
        OSError: the file cannot be created.
    """
    if create:
        file.parent.mkdir(parents=True, exist_ok=True)
    while True:
        try:
            descriptor = os.open(file, os.O_RDWR | (os.O_CREAT if create else 0), 0o644)
        except FileNotFoundError:
            if create:
                raise
            return None
        lock = FileLock(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            lock.release()
            if create and error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return FileLock(None)  # a filesystem without locks: no other process can lock the file either
            return None
        if _is_at(descriptor, file):
            if create:
                sync(file.parent)
            return lock
        lock.release()  # its holder removed the file between the open and the lock


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    opened = os.fstat(descriptor)
    return (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
