"""Files that outlive a crash: writes that are durable when they return, and locks between processes.

A file written and renamed is there after a crash of the process, and not yet after a power cut: the filesystem may keep
the name and lose the content, or lose both. Content is durable after an fsync of the file, a name after one of its
folder. Files written together are synced together, several at a time, which costs a small part of one after the other.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import weakref
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_NO_LINKS = (errno.EPERM, errno.EACCES, errno.EMLINK, errno.EXDEV, errno.ENOTSUP, errno.ENOSYS)
_THREADS = 8  # the filesystem commits the syncs that arrive together at once


def sync(path: Path) -> None:
    """Fsync a closed file, or a folder, so that the names in it survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder with its parents, durably; nothing is synced where it exists."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        sync(folder.parent)


def sync_tree(root: Path, files: Iterable[Path]) -> None:
    """Fsync files below a folder, then the folders from theirs up to this one. A file that is gone is left out."""
    wanted = list(dict.fromkeys(files))
    folders: set[Path] = set()
    for folder in {file.parent for file in wanted}:
        while folder not in folders and folder.is_relative_to(root):
            folders.add(folder)
            folder = folder.parent
    deepest_first = sorted(folders, key=lambda folder: len(folder.parts), reverse=True)
    with ThreadPoolExecutor(_THREADS) as threads:
        for wave in (wanted, deepest_first):
            list(threads.map(_sync_each, [wave[at::_THREADS] for at in range(min(_THREADS, len(wave)))]))


def append_durably(file: Path, data: bytes) -> int:
    """Append bytes to a file, created where there is none, and fsync it; return their offset."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        offset = os.fstat(handle).st_size
        written = 0
        try:
            while written < len(data):
                written += os.write(handle, data[written:])
            os.fsync(handle)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, offset)  # a partial line would corrupt the next append
            raise
        return offset
    finally:
        os.close(handle)


def link_or_copy(source: Path, target: Path) -> None:
    """Create a hard link to a file, or where the filesystem allows none a copy of it.

    Raises:
        OSError: the source is not there, or the target cannot be written.
    """
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(source, target)


def _sync_each(paths: Iterable[Path]) -> None:
    for path in paths:
        with suppress(FileNotFoundError):
            sync(path)


class FileLock:
    """A lock of this process on a file, until `release` or the end of the process."""

    def __init__(self, descriptor: int | None) -> None:
        self._close = weakref.finalize(self, os.close, descriptor) if descriptor is not None else lambda: None

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        self._close()


def lock_file(file: Path, create: bool, *, wait: bool = False) -> FileLock | None:
    """Lock a file against every other process; None where another process has it or the file does not exist.

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
