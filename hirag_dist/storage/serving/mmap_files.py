"""Memory-mapped files: processes that map the same file share its pages."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.layout import CHANGED, SLOTS, STORED
from hirag_dist.storage.serving.checks import TEXT_ROWS, array_fault
from hirag_dist.storage.serving.text_columns import MAX_READ_BYTES, TextColumns

_MIN_BYTES = 64 << 20  # that are worth a thread
_BLOCK_BYTES = 64 << 20  # between two checks of the stop event
_STRIDE_BYTES = 64 << 10  # that the system maps or reads at one access
_HEADER_LOCK = threading.Lock()  # numpy parses headers with `ast`, which is not thread-safe before Python 3.12


def map_array(path: Path) -> NDArray[Any]:
    """Return an array of a .npy file, mapped: a page is read on first access. A small file is read into memory.

    Raises:
        SnapshotCorrupt: it is no such file.
    """
    try:
        with _HEADER_LOCK:
            if path.stat().st_size <= MAX_READ_BYTES:
                small: NDArray[Any] = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
                small.flags.writeable = False  # as a mapped array
                return small
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise damaged(path, error) from error
    plain: NDArray[Any] = mapped.view(np.ndarray)  # slices of a memmap are slow
    return plain


class ServingFiles:
    """The serving files of one snapshot (`storage.serving.writer`), each checked when it is mapped.

    Attributes:
        folder: folder of the files.
    """

    def __init__(self, folder: Path, counts: Mapping[str, int] | None = None, slotted: Collection[str] = ()) -> None:
        """Map nothing yet.

        Args:
            counts: table → its rows, by which files are checked; None: they were written by this process.
            slotted: tables whose texts lie in two files, as the manifest says: a kill may have left files.
        """
        self._slotted = slotted
        self.folder = folder
        self._counts = counts
        # Not `functools.cache` on methods: a cycle would keep the files mapped until the garbage is collected.
        self._arrays: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, TextColumns] = {}

    def is_slotted(self, table: str) -> bool:
        """Return whether the rows of a table lie in files of a former snapshot and in files of changed rows."""
        return table in self._slotted

    def has(self, name: str) -> bool:
        """Return whether there is an array of that name: some are optional."""
        return name in self._arrays or (self.folder / f"{name}.npy").exists()

    def array(self, name: str) -> NDArray[Any]:
        """Return an array by its name."""
        if name not in self._arrays:
            path = self.folder / f"{name}.npy"
            self._arrays[name] = array = map_array(path)
            if self._counts is not None and (fault := array_fault(name, array, self.size)):
                raise damaged(path, fault)
        return self._arrays[name]

    def size(self, name: str) -> int:
        """Return the rows of a table, of a file of texts or of an array."""
        if self._counts is not None and name in self._counts:
            return self._counts[name]
        if name.endswith(".arrow"):
            return int(self.texts(name).n_rows)
        return len(self.array(name))

    def texts(self, name: str) -> TextColumns:
        """Return a file of texts by its name."""
        if name not in self._texts:
            path, table = self.folder / name, Path(name).stem
            if self.is_slotted(table):
                stored, changed = (self.folder / f"{part}{name}" for part in (STORED, CHANGED))
                texts = TextColumns(stored, changed, self.array(SLOTS[table]))
            else:
                texts = TextColumns(path)
            self._texts[name] = texts
            expected = self.size(TEXT_ROWS[name]) if self._counts is not None and name in TEXT_ROWS else texts.n_rows
            if texts.n_rows != expected:
                raise damaged(path, f"expected {expected} rows, got {texts.n_rows}")
        return self._texts[name]

    def pages(self) -> list[NDArray[np.uint8]]:
        """Return the bytes of all arrays and texts mapped so far."""
        texts = [buffer for columns in self._texts.values() for buffer in columns.buffers()]
        return [*map(as_bytes, self._arrays.values()), *(np.frombuffer(buffer, np.uint8) for buffer in texts)]


def damaged(path: Path | str, fault: object) -> SnapshotCorrupt:
    """Return the error for a file that is not what it should be."""
    return SnapshotCorrupt(f"{path} is damaged: {fault}; build again or serve another snapshot")


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array, without a copy."""
    return array.reshape(-1).view(np.uint8)


class ReadAhead:
    """Reads mapped pages in the background, before questions do.

    On the first access to a page the system maps it, and reads it from disk if need be: milliseconds for the thousands
    of pages of one question. Pages stay shared, and the system may drop them at any time.
    """

    def __init__(self, pages: Sequence[NDArray[np.uint8]]) -> None:
        """Start a thread, unless the pages are few or fill more than half of the memory."""
        self._stop = threading.Event()
        n_bytes = sum(len(part) for part in pages)
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if _MIN_BYTES <= n_bytes <= memory_bytes // 2:
            threading.Thread(target=self._read, args=(list(pages),), name="read-ahead", daemon=True).start()

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()

    def _read(self, pages: Sequence[NDArray[np.uint8]]) -> None:
        for part in pages:
            for first in range(0, len(part), _BLOCK_BYTES):
                if self._stop.is_set():
                    return
                np.add.reduce(part[first : first + _BLOCK_BYTES : _STRIDE_BYTES])
