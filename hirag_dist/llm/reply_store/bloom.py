"""Bloom filters over keys: which segments may hold a key, asked of all of them at once.

14 bits a key and 8 probes: 1 key in 700 that is not there is looked for. Keys are hashes already, so two halves of a
key choose its bits.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_BITS_A_KEY = 14
_PROBES = np.arange(8, dtype=np.uint64)
_HALVES = struct.Struct("<QQ")
_KEY_BYTES = 20


def make_filter(keys: bytes) -> NDArray[np.uint8]:
    """Return the filter of keys that stand one after another, 20 bytes each; its size in bits is 8 times its length."""
    halves = np.frombuffer(keys, np.uint8).reshape(-1, _KEY_BYTES)[:, 4:].copy().view("<u8")
    n_bytes = max(8, -(-len(halves) * _BITS_A_KEY // 8))
    bits = np.zeros(8 * n_bytes, np.bool_)
    for probe in _PROBES:
        bits[(halves[:, 0] + probe * halves[:, 1]) % np.uint64(8 * n_bytes)] = True
    return np.packbits(bits, bitorder="little")


class FilterBank:
    """Filters side by side in memory."""

    def __init__(self, filters: Sequence[NDArray[np.uint8]]) -> None:
        sizes = np.array([len(each) for each in filters], np.uint64)
        self._starts = (np.cumsum(sizes) - sizes)[:, None]
        self._n_bits = (sizes * np.uint64(8))[:, None]
        self._bytes = np.concatenate(filters) if filters else np.zeros(0, np.uint8)
        self._ends = np.cumsum(sizes)

    def __getitem__(self, number: int) -> NDArray[np.uint8]:
        """Return a filter as a view of the bank."""
        return self._bytes[int(self._starts[number, 0]) : int(self._ends[number])]

    def may_hold(self, key: bytes) -> NDArray[np.intp]:
        """Return the numbers of the filters that may hold a key, in order."""
        one, two = _HALVES.unpack_from(key, 4)
        bits = (np.uint64(one) + _PROBES * np.uint64(two)) % self._n_bits
        found = self._bytes[self._starts + (bits >> np.uint64(3))] >> (bits & np.uint64(7)).astype(np.uint8)
        return np.flatnonzero((found & 1).all(axis=1))
