"""Files mapped into memory: processes that open the same ones share their pages."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.storage.serving.text_columns import TextColumns

_WORTHWHILE_BYTES = 64 << 20
_AT_ONCE_BYTES = 64 << 20  # between two looks at whether to stop
_APART_BYTES = 64 << 10  # what the system maps, or reads, at a touch
_READING = threading.Lock()  # of headers, with `ast`, which fails in several threads at once before Python 3.12


def map_array(path: Path) -> NDArray[Any]:
    """Return an array of a .npy file, read when it is touched.

    Raises:
        SnapshotCorrupt: it is no such file.
    """
    try:
        with _READING:
            mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, EOFError, ValueError) as error:
        raise SnapshotCorrupt(f"{path} is damaged: {error}; build again or serve another snapshot") from error
    plain: NDArray[Any] = mapped.view(np.ndarray)  # the same pages, without memmap's cost at every slice
    return plain


class ServingFiles:
    """The serving files of one snapshot (`storage.serving.writer`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not `functools.cache` of methods: an object in a cycle keeps its files mapped until the garbage is collected.
        self._arrays: dict[str, NDArray[Any]] = {}
        self._texts: dict[str, TextColumns] = {}

    def has(self, name: str) -> bool:
        """Whether there is an array of that name: some are of snapshots alone that have something to say there."""
        return name in self._arrays or (self._folder / f"{name}.npy").exists()

    def array(self, name: str) -> NDArray[Any]:
        """Return an array by its name."""
        if name not in self._arrays:
            self._arrays[name] = map_array(self._folder / f"{name}.npy")
        return self._arrays[name]

    def texts(self, name: str) -> TextColumns:
        """Return a file of texts by its name."""
        if name not in self._texts:
            self._texts[name] = TextColumns(self._folder / name)
        return self._texts[name]

    def pages(self) -> list[NDArray[np.uint8]]:
        """Return the bytes of what has been mapped."""
        texts = [buffer for columns in self._texts.values() for buffer in columns.buffers()]
        return [*map(as_bytes, self._arrays.values()), *(np.frombuffer(buffer, np.uint8) for buffer in texts)]


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array, without a copy."""
    return array.reshape(-1).view(np.uint8)


class ReadAhead:
    """Touches mapped pages in the background, so that questions need not wait for each page that they are first at.

    The first question to reach a page has the system map it, and read it where it is not in memory: milliseconds for
    the thousands of pages of one question. Pages stay shared, and the system may drop them at any time.
    """

    def __init__(self, pages: Sequence[NDArray[np.uint8]]) -> None:
        """Start, where it is worth a thread, and where the pages fill no more than half of the memory.

        Args:
            pages: bytes of mapped files.
        """
        self._stop = threading.Event()
        n_bytes = sum(len(part) for part in pages)
        memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if _WORTHWHILE_BYTES <= n_bytes <= memory_bytes // 2:
            threading.Thread(target=self._read, args=(list(pages),), name="read-ahead", daemon=True).start()

    def stop(self) -> None:
        """Go no further."""
        self._stop.set()

    def _read(self, pages: Sequence[NDArray[np.uint8]]) -> None:
        for part in pages:
            for first in range(0, len(part), _AT_ONCE_BYTES):
                if self._stop.is_set():
                    return
                np.add.reduce(part[first : first + _AT_ONCE_BYTES : _APART_BYTES])
