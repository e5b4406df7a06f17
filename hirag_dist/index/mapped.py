"""Files mapped into memory: processes that open the same ones share their pages."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import SnapshotCorrupt
from hirag_dist.index.texts import TextColumns

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
    """The serving files of one snapshot (`index.serving`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        # Not `functools.cache` of methods: an object in a cycle keeps its files mapped until the garbage is collected.
        self._arrays: dict[str, NDArray[Any]] = {}
        self._files: dict[str, TextColumns] = {}

    def array(self, name: str) -> NDArray[Any]:
        """Return an array by its name."""
        if name not in self._arrays:
            self._arrays[name] = map_array(self._folder / f"{name}.npy")
        return self._arrays[name]

    def texts(self, name: str) -> TextColumns:
        """Return a file of texts by its name."""
        if name not in self._files:
            self._files[name] = TextColumns(self._folder / name)
        return self._files[name]
