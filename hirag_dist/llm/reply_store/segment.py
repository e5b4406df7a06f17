"""Sealed segments: records sorted by key, each key once, never changed after they are written.

Blocks of about 64 KiB, then a tail: for each block the first 8 bytes of its first key and where it ends, a Bloom
filter over the keys, and a footer. A reader keeps the tail, 14 bits a key and 16 bytes a block, and reads one block for
a key that is there; for one that is not it reads nothing in 699 of 700 cases.

The filter has 8 probes; keys are hashes already, so two halves of a key choose its bits.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store.block_format import ENTRY, KEY_BYTES, Block, DamagedBlock, Record, pack_block
from hirag_dist.storage.layout import LEDGER
from hirag_dist.storage.store import Store

_BITS_A_KEY = 14
_PROBES = np.arange(8, dtype=np.uint64)
_HALVES = struct.Struct("<QQ")


def make_filter(keys: bytes) -> NDArray[np.uint8]:
    """Return the filter of keys that stand one after another, 20 bytes each; its size in bits is 8 times its length."""
    halves = np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)[:, 4:].copy().view("<u8")
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


BLOCK_BYTES = 64 << 10
_MAGIC = b"HIRAGSG1"
_FOOTER = struct.Struct("<8sQIII20s20s")  # magic, records, blocks, index and filter bytes, first and last key
_CRC = struct.Struct("<I")  # of all of the tail before it
_TAIL_GUESS = 64 << 10
_FENCE = np.dtype("<u8")


@dataclass(frozen=True, slots=True)
class Segment:
    """The index of a segment that a reader keeps.

    Attributes:
        fences: (n_blocks,) first 8 bytes of each block's first key, as numbers.
        ends: (n_blocks,) where each block ends in the file.
        filter: over its keys, for a `FilterBank`.
    """

    path: str
    n_records: int
    first: bytes
    last: bytes
    fences: NDArray[np.uint64]
    ends: NDArray[np.uint64]
    filter: NDArray[np.uint8]

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use."""
        return self.fences.nbytes + self.ends.nbytes + self.filter.nbytes

    def span(self, key: bytes) -> tuple[int, int] | None:
        """Return (offset, length) of the block that holds a key if any does; the filter is not asked."""
        if not self.first <= key <= self.last:
            return None
        number = int(np.searchsorted(self.fences, np.uint64(_fence(key)), "right")) - 1
        offset = int(self.ends[number - 1]) if number else 0
        return offset, int(self.ends[number]) - offset

    def read_block(self, store: Store, offset: int, length: int) -> Block:
        """Return a block. Raises StoreError where it cannot be read, or is damaged."""
        try:
            return Block.unpack(store.read_range(self.path, offset, length))
        except DamagedBlock:
            raise damaged(store, self.path) from None

    def scan(self, store: Store, chunk_bytes: int) -> Iterator[Record]:
        """Yield all records in order, about `chunk_bytes` read at a time. Raises StoreError, of a damaged block too."""
        number = start = 0
        while number < len(self.ends):
            stop = max(number + 1, int(np.searchsorted(self.ends, np.uint64(start + chunk_bytes), "right")))
            data = store.read_range(self.path, start, int(self.ends[stop - 1]) - start)
            for each in range(number, stop):
                try:
                    yield from Block.unpack(data, (int(self.ends[each - 1]) if each else 0) - start)
                except DamagedBlock:
                    raise damaged(store, self.path) from None
            number, start = stop, int(self.ends[stop - 1])


def damaged(store: Store, path: str) -> StoreError:
    """Return the error for a segment that does not hold what was written."""
    return StoreError(
        f"{store.uri}/{path} is damaged: put back a copy of it, or delete it and the replies in it are paid for again"
    )


def open_segment(store: Store, name: str, size: int) -> Segment:
    """Read a segment's tail. Raises StoreError where it cannot be read, or is damaged."""
    path = f"{LEDGER}/{name}"
    tail = store.read_range(path, max(0, size - _TAIL_GUESS), min(size, _TAIL_GUESS))
    ending = _FOOTER.size + _CRC.size
    if len(tail) < ending:
        raise damaged(store, path)
    magic, n_records, n_blocks, index_bytes, filter_bytes, first, last = _FOOTER.unpack_from(tail, len(tail) - ending)
    wanted = index_bytes + filter_bytes + ending
    if magic != _MAGIC or wanted > size:
        raise damaged(store, path)
    tail = tail[-wanted:] if wanted <= len(tail) else store.read_range(path, size - wanted, wanted)
    if _CRC.pack(zlib.crc32(tail[: -_CRC.size])) != tail[-_CRC.size :]:
        raise damaged(store, path)
    numbers = np.frombuffer(tail[:index_bytes], _FENCE)
    bloom = np.frombuffer(tail[index_bytes : index_bytes + filter_bytes], np.uint8)
    return Segment(path, n_records, first, last, numbers[:n_blocks].copy(), numbers[n_blocks:].copy(), bloom)


class SegmentWriter:
    """Writes one segment to a stream, from records in order."""

    def __init__(self, stream: BinaryIO, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = stream
        self._block_bytes = block_bytes
        self._block: list[Record] = []
        self._raw = 0
        self._keys = bytearray()
        self._fences: list[int] = []
        self._ends: list[int] = []

    @property
    def n_bytes(self) -> int:
        """Bytes of the blocks written so far."""
        return self._ends[-1] if self._ends else 0

    @property
    def n_records(self) -> int:
        """Records added so far."""
        return len(self._keys) // KEY_BYTES

    def add(self, record: Record) -> None:
        """Add a record, whose key is greater than the last one's."""
        n_bytes = ENTRY.size + len(record.value)
        full = bool(self._block) and self._raw + n_bytes > self._block_bytes
        if full and _fence(self._block[-1].key) != _fence(record.key):  # so that a key can be in one block only
            self._end_block()
        self._block.append(record)
        self._raw += n_bytes
        self._keys += record.key

    def finish(self) -> None:
        """Write the rest, and the tail. At least one record was added."""
        self._end_block()
        index = np.array([self._fences, self._ends], _FENCE).tobytes()
        bloom = make_filter(bytes(self._keys)).tobytes()
        first, last = bytes(self._keys[:20]), bytes(self._keys[-20:])
        footer = _FOOTER.pack(_MAGIC, self.n_records, len(self._ends), len(index), len(bloom), first, last)
        tail = index + bloom + footer
        self._stream.write(tail + _CRC.pack(zlib.crc32(tail)))

    def _end_block(self) -> None:
        data = pack_block(self._block)
        self._stream.write(data)
        self._fences.append(_fence(self._block[0].key))
        self._ends.append(self.n_bytes + len(data))
        self._block, self._raw = [], 0


def write_segment(store: Store, name: str, records: Iterable[Record], block_bytes: int = BLOCK_BYTES) -> None:
    """Write a segment of sorted records, each key once, at least one; it is durable when this returns."""
    with store.create(f"{LEDGER}/{name}") as stream:
        writer = SegmentWriter(stream, block_bytes)
        for record in records:
            writer.add(record)
        writer.finish()


def _fence(key: bytes) -> int:
    return int.from_bytes(key[:8], "big")
