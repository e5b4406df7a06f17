"""Texts for generated indexes, cut from the sample corpus: real words, so that they cost what real tokens cost."""

from __future__ import annotations

from importlib import resources

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_BLOCK_BYTES = 8 << 20
_NAME_LETTERS = range(4, 10)


class Prose:
    """The sample corpus as one line of ASCII, cut at words."""

    def __init__(self) -> None:
        files = sorted(resources.files("hirag_dist.samples").joinpath("corpus").iterdir(), key=lambda file: file.name)
        words = " ".join(file.read_text(encoding="utf-8") for file in files).encode("ascii", "ignore").split()
        self._bytes = np.frombuffer(b" ".join(words), np.uint8)
        self._ends = np.append(np.flatnonzero(self._bytes == ord(" ")), len(self._bytes))
        self._starts = np.concatenate([[0], self._ends[:-1] + 1])
        known = {word.decode().capitalize() for word in words if word.isalpha() and len(word) in _NAME_LETTERS}
        self.words = pa.array(sorted(known))

    def texts(self, lengths: NDArray[np.int64], rng: np.random.Generator) -> pa.StringArray:
        """Return one text for each length, in characters, up to the end of the word that it falls in.

        Memory: the texts, and 9 bytes a character of some 8 MB of them.

        Raises:
            ValueError: together they are longer than the 2 GiB that an Arrow array of strings holds.
        """
        last = int(np.searchsorted(self._starts, len(self._bytes) - int(lengths.max(initial=0)), "right")) - 1
        first = self._starts[rng.integers(0, last, len(lengths))]
        ends = self._ends[np.minimum(np.searchsorted(self._ends, first + lengths), len(self._ends) - 1)]
        bounds = np.concatenate([[0], np.cumsum(ends - first)])
        if bounds[-1] >= 1 << 31:
            raise ValueError(f"{bounds[-1]:,} characters in one column; generate fewer entities")
        data = np.empty(bounds[-1], np.uint8)
        row = 0
        while row < len(first):
            stop = max(int(np.searchsorted(bounds, bounds[row] + _BLOCK_BYTES)) - 1, row + 1)
            part = slice(int(bounds[row]), int(bounds[stop]))
            shift = np.repeat(first[row:stop] - bounds[row:stop], np.diff(bounds[row : stop + 1]))
            data[part] = self._bytes[shift + np.arange(part.start, part.stop)]
            row = stop
        offsets = pa.py_buffer(bounds.astype(np.int32))
        return pa.StringArray.from_buffers(len(first), offsets, pa.py_buffer(data))
