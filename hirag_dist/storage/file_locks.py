"""What only files of a machine's own folders can do: to be appended to, to be held, to outlive a power cut."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path


class FileLock:
    """A file held by this process, until `release` or the end of the process, however it comes."""

    def __init__(self, descriptor: int | None) -> None:
        self._close = weakref.finalize(self, os.close, descriptor) if descriptor is not None else lambda: None

    def release(self) -> None:
        """Let go; a second time does nothing."""
        self._close()


def lock_file(file: Path, create: bool) -> FileLock | None:
    """Hold a file against every other process; None where another has it or it is not there.

    Args:
        create: make the file, empty, where it is not there.
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
        held = FileLock(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            held.release()
            if create and error.errno in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
                return FileLock(None)  # no locks here: nobody else can hold it either, so nobody ends it
            return None
        if _is_at(descriptor, file):
            if create:
                sync_folder(file.parent)
            return held
        held.release()  # removed by its holder between our opening and our locking


def append_durably(file: Path, data: bytes) -> int:
    """Add bytes to a file, which is made where it is not there; return the offset where they are."""
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
                os.ftruncate(handle, offset)  # no half line for the next append to run into
            raise
        return offset
    finally:
        os.close(handle)


def sync_folder(path: Path) -> None:
    """Make the names in a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(descriptor)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
