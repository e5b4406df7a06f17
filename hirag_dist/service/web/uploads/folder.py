"""The folder of uploaded documents: a folder of its own for each upload, and nothing is written outside it."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from hirag_dist.errors import ConfigError, InputError, StoreError
from hirag_dist.service.web.options import UploadOptions

_STAGING = ".staging"  # uploads that are not confirmed; readers leave out names that begin with a dot
_LOCK = ".lock"
_PART = ".part"


class UploadFolder:
    """The uploads folder of one service.

    An upload is staged in a hidden folder. Once confirmed it is `FOLDER/TIME-ID`, and stays: `hirag-dist retry` reads
    the INPUT of the last update, and `hirag-dist index` wants all documents.

    Args:
        options: folder and limits.

    Raises:
        ConfigError: the folder cannot be made, or another service uses it.
    """

    def __init__(self, options: UploadOptions) -> None:
        self._root = Path(options.folder).absolute()
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(self._root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise ConfigError(f"uploads cannot be kept in {options.folder}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise ConfigError(
                f"another service keeps its uploads in {options.folder}: choose another folder"
            ) from error
        shutil.rmtree(self._root / _STAGING, ignore_errors=True)  # of a service that ended

    def close(self) -> None:
        """Release the folder."""
        os.close(self._lock)

    def begin(self) -> Path:
        """Make and return the folder of a new upload, staged."""
        made = self._root / _STAGING / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:8]}"
        made.mkdir(parents=True, mode=0o700)
        return made

    def confirm(self, staged: Path) -> Path:
        """Return the folder of an upload that was confirmed, moved to where it stays; one that is there stays."""
        if staged.parent == self._root:
            return staged
        return staged.rename(self._root / staged.name)

    def discard(self, upload: Path) -> None:
        """Remove an upload."""
        if upload.parent in (self._root, self._root / _STAGING):
            shutil.rmtree(upload, ignore_errors=True)

    def replace_earlier(self, upload: Path) -> None:
        """Remove the files of earlier uploads that this one replaced in the index, by their names."""
        names = {path.name for path in upload.iterdir()}
        for earlier in self._root.iterdir():
            if earlier == upload or earlier.name.startswith(".") or not earlier.is_dir() or earlier.is_symlink():
                continue
            for name in names:
                (earlier / name).unlink(missing_ok=True)
            with suppress(OSError):  # it holds other files
                earlier.rmdir()


async def write_file(upload: Path, name: str, chunks: AsyncIterator[bytes], max_bytes: int) -> int:
    """Write a file of an upload as it arrives; return its size.

    Args:
        name: as `names.safe_name` returns it; a file of that name is replaced.
        max_bytes: its largest size.

    Raises:
        InputError: it is larger.
        StoreError: it cannot be written.
    """
    part = f".{uuid.uuid4().hex}{_PART}"
    folder = os.open(upload, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    size = 0
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        with os.fdopen(os.open(part, flags, 0o600, dir_fd=folder), "wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > max_bytes:
                    raise InputError(f"{name} is larger than the {max_bytes:,} bytes that an upload may still have")
                file.write(chunk)
        os.rename(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if isinstance(error, ConnectionError | TimeoutError):  # of the browser
            raise
        raise StoreError(f"{name} cannot be written: {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        os.close(folder)
    return size
