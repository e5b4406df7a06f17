"""A file that hashes and counts the bytes that are written to it."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from typing import Any, BinaryIO


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """Size and hash of a file as it was written.

    Attributes:
        size: bytes.
        sha256: hex.
    """

    size: int
    sha256: str


class HashingFile(io.RawIOBase):
    """Passes what is written on to another file."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._digest = hashlib.sha256()
        self._size = 0

    @property
    def written(self) -> WrittenFile:
        """The bytes so far."""
        return WrittenFile(self._size, self._digest.hexdigest())

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes; return their number."""
        self._file.write(data)
        self._digest.update(data)
        n_bytes = memoryview(data).nbytes
        self._size += n_bytes
        return n_bytes

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._size
