"""Reader of a ledger's files: the index of each file, and lookups of keys. Everything here blocks.

The union of the files is the ledger at any moment (DESIGN.md), so a reader that finds a file gone looks at the folder
again and finds its records elsewhere. Logs hold replies before they are sealed; their writers have them in memory and
read nothing here.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store.block_format import (
    LOG,
    MAGIC,
    PREFIX,
    SEGMENT,
    Block,
    DamagedBlock,
    Record,
    head_bytes,
    keep_first,
    path_of,
    unpack_head,
)
from hirag_dist.llm.reply_store.segment import FilterBank, Segment, open_segment
from hirag_dist.storage.layout import LEDGER
from hirag_dist.storage.store import Store, StoreEntry

logger = logging.getLogger(__name__)

_CACHE_BYTES = 16 << 20
_N_AT_ONCE = 16  # reads from an object store, each of which takes tens of milliseconds
_TRIES = 10


class _Place(NamedTuple):
    source: Segment | LogIndex
    offset: int
    length: int

    @property
    def name(self) -> tuple[str, int]:
        return self.source.path, self.offset


class _Files(NamedTuple):
    """Replaced as one: a lookup must not see the segments of before with the logs of after."""

    segments: dict[str, Segment]
    bank: FilterBank
    in_bank: list[Segment]  # in the order of the bank's filters
    logs: dict[str, LogIndex]


class _Gone(Exception):
    """A file was merged into others since it was listed."""


class LedgerReader:
    """The files of a ledger as they were at the last `refresh`. Lookups may go on in other threads meanwhile."""

    def __init__(self, store: Store, cache_bytes: int = _CACHE_BYTES) -> None:
        self._store = store
        self._files = _Files({}, FilterBank([]), [], {})
        self._refreshing = threading.Lock()
        self._cache = _Cache(cache_bytes)
        self._readers: ThreadPoolExecutor | None = None

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of the index of segments, without cached blocks."""
        return sum(segment.memory_bytes for segment in self._files.segments.values())

    def refresh(self, own: Collection[str] = ()) -> None:
        """See every record that was durable when this was called.

        Args:
            own: beginnings of the names of logs to leave out: their writer has them in memory.

        Raises:
            StoreError: the ledger cannot be read.
        """
        with self._refreshing:
            for _ in range(_TRIES):
                # Twice: one listing may pass the place of a new file before it is there, and that of the file it
                # replaces after it is gone.
                entries = self._store.entries(LEDGER)
                entries |= self._store.entries(LEDGER)
                try:
                    self._take_in(entries, tuple(own))
                    return
                except _Gone:
                    continue
            raise StoreError(f"{self._store.uri}/{LEDGER} changes faster than it can be read; run again")

    def cached(self, keys: Iterable[bytes]) -> dict[bytes, Record] | None:
        """Return the records of those keys that there are, None where that takes reading."""
        found: dict[bytes, Record] = {}
        for key in keys:
            for place in self._places(key):
                block = self._cache.get(place.name)
                if block is None:
                    return None
                if record := block.find(key):
                    keep_first(found, record)
        return found

    def find(self, keys: Collection[bytes], own: Collection[str] = ()) -> dict[bytes, Record]:
        """Return the records of those keys that there are. Raises StoreError, of a damaged file too."""
        for _ in range(_TRIES):
            try:
                return self._find(keys)
            except _Gone:
                self.refresh(own)
        raise StoreError(f"{self._store.uri}/{LEDGER} changes faster than it can be read; run again")

    def close(self) -> None:
        """Stop the threads; lookups continue to work."""
        if self._readers is not None:
            self._readers.shutdown()
            self._readers = None

    def _take_in(self, entries: dict[str, StoreEntry], own: tuple[str, ...]) -> None:
        segments: dict[str, Segment] = {}
        logs: dict[str, LogIndex] = {}
        for name, entry in entries.items():
            try:
                if SEGMENT.fullmatch(name):
                    segments[name] = self._files.segments.get(name) or open_segment(self._store, name, entry.size)
                elif LOG.fullmatch(name) and not (own and name.startswith(own)):
                    logs[name] = self._files.logs.get(name) or LogIndex(name)
                    logs[name].advance(self._store, entry.size)
            except StoreError as error:
                raise self._or_gone(f"{LEDGER}/{name}", error) from error
        before = self._files
        if segments.keys() != before.segments.keys():
            bank = FilterBank([segment.filter for segment in segments.values()])
            packed = [replace(segment, filter=bank[n]) for n, segment in enumerate(segments.values())]
            self._files = _Files(dict(zip(segments, packed, strict=True)), bank, packed, logs)
        else:
            self._files = before._replace(logs=logs)

    def _find(self, keys: Collection[bytes]) -> dict[bytes, Record]:
        wanted: dict[tuple[str, int], tuple[_Place, list[bytes]]] = {}
        for key in keys:
            for place in self._places(key):
                wanted.setdefault(place.name, (place, []))[1].append(key)
        found: dict[bytes, Record] = {}
        for block, block_keys in self._read(wanted.values()):
            for key in block_keys:
                if record := block.find(key):
                    keep_first(found, record)
        return found

    def _read(self, wanted: Collection[tuple[_Place, list[bytes]]]) -> Iterable[tuple[Block, list[bytes]]]:
        if self._store.local is not None or len(wanted) == 1:
            return ((self._block(place), keys) for place, keys in wanted)
        if self._readers is None:
            self._readers = ThreadPoolExecutor(_N_AT_ONCE, thread_name_prefix="ledger")
        blocks = self._readers.map(self._block, [place for place, _ in wanted])
        return zip(blocks, (keys for _, keys in wanted), strict=True)

    def _places(self, key: bytes) -> list[_Place]:
        _, bank, segments, logs = self._files
        places: list[_Place] = []
        for number in bank.may_hold(key) if segments else ():
            span = segments[number].span(key)
            if span is not None:
                places.append(_Place(segments[number], *span))
        for each in logs.values():
            places.extend(_Place(each, *span) for span in each.spans(key))
        return places

    def _block(self, place: _Place) -> Block:
        block = self._cache.get(place.name)
        if block is None:
            try:
                block = place.source.read_block(self._store, place.offset, place.length)
            except StoreError as error:
                raise self._or_gone(place.source.path, error) from error
            self._cache.put(place.name, block)
        return block

    def _or_gone(self, path: str, error: StoreError) -> Exception:
        return error if self._store.exists(path) else _Gone()


class _Cache:
    """Blocks, the least recently used ones dropped first."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._held = 0
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: tuple[str, int]) -> Block | None:
        with self._lock:
            block = self._blocks.get(name)
            if block is not None:
                self._blocks.move_to_end(name)
            return block

    def put(self, name: tuple[str, int], block: Block) -> None:
        with self._lock:
            if name in self._blocks:
                return
            self._blocks[name] = block
            self._held += block.memory_bytes
            while self._held > self._limit and len(self._blocks) > 1:
                self._held -= self._blocks.popitem(last=False)[1].memory_bytes


_HEAD_GUESS = 4 << 10  # the head of a full group takes 2 KiB


class LogIndex:
    """The offsets of a log's records: about 150 bytes per record, for the few thousand that are not sealed yet."""

    def __init__(self, name: str) -> None:
        self.path = path_of(name)
        self._read_to = 0
        self._spans: list[tuple[int, int]] = []
        self._of_key: dict[bytes, int | tuple[int, ...]] = {}  # key → numbers of its spans

    def __len__(self) -> int:
        return len(self._of_key)

    def advance(self, store: Store, size: int) -> None:
        """Take in what was added to the log up to `size`. What is cut off there is left for another time."""
        at = self._read_to
        while at < size:
            try:
                data = store.read_range(self.path, at, min(_HEAD_GUESS, size - at))
                wanted = head_bytes(data)
                if wanted > len(data):
                    data = store.read_range(self.path, at, wanted)
                head = unpack_head(data)
            except DamagedBlock:
                beyond = _next_block(store.read_range(self.path, at, size - at), 1)
                if beyond is None:
                    break
                at += beyond
                continue
            if at + head.n_bytes > size:
                break
            self._add(head.keys(), (at, head.n_bytes))
            at += head.n_bytes
        self._read_to = at

    def spans(self, key: bytes) -> list[tuple[int, int]]:
        """Return (offset, length) of what holds records of a key."""
        numbers = self._of_key.get(key, ())
        return [self._spans[number] for number in ((numbers,) if isinstance(numbers, int) else numbers)]

    def read_block(self, store: Store, offset: int, length: int) -> Block:
        """Return the bytes of a span; none if a crash left it unfinished, since it was never acknowledged.

        Raises:
            StoreError: it cannot be read.
        """
        data = store.read_range(self.path, offset, length)
        try:
            return Block.unpack(data)
        except DamagedBlock:
            logger.warning("%d bytes of %s/%s are damaged and are passed over", length, store.uri, self.path)
            return Block(b"", b"")

    def _add(self, keys: Iterator[bytes], span: tuple[int, int]) -> None:
        number = len(self._spans)
        self._spans.append(span)  # before the keys that lead to it: lookups go on meanwhile
        for key in keys:
            known = self._of_key.get(key)
            if known is None:
                self._of_key[key] = number
            else:
                self._of_key[key] = (*((known,) if isinstance(known, int) else known), number)


def scan_log(store: Store, name: str) -> Iterator[Record]:
    """Yield all records of a log as they come; what is cut off or damaged is passed over. Raises StoreError."""
    path = path_of(name)
    data = store.read_bytes(path)  # logs are sealed long before they are large
    at: int | None = 0
    while at is not None and at < len(data):
        try:
            yield from Block.unpack(data, at)
            at += unpack_head(data, at).n_bytes
        except DamagedBlock:
            beyond = _next_block(data, at + 1)
            if beyond is not None:  # else it is the end, cut off as a crash leaves it
                logger.warning("%d bytes of %s/%s are damaged and are passed over", beyond - at, store.uri, path)
            at = beyond


def _next_block(data: bytes, at: int) -> int | None:
    """Return where the next sound head begins, None where there is none."""
    at = data.find(MAGIC, at)
    while 0 <= at <= len(data) - PREFIX.size:
        try:
            unpack_head(data, at)
            return at
        except DamagedBlock:
            at = data.find(MAGIC, at + 1)
    return None
