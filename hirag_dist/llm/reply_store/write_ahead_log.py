"""Logs: where replies are before they are sealed. Read here by others than their writers, who have them in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from hirag_dist.llm.reply_store.block_format import (
    MAGIC,
    PREFIX,
    Block,
    DamagedBlock,
    Record,
    head_bytes,
    path_of,
    unpack_head,
)
from hirag_dist.storage.store import Store

logger = logging.getLogger(__name__)
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
            return Block.of([])

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
    """Yield all records of a log as they come; what is cut off or damaged is passed over.

    Raises:
        StoreError: it cannot be read.
    """
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
