"""The files of a ledger by name, and the blocks of records in them: the unit of writing, compression and checking.

ledger/
  <host>-<pid>-<id>.log        an open log: blocks as they were written, in groups
  <host>-<pid>-<id>.log-<id>   on an object store, where nothing is appended to: one group
  <run>-<part>.seg             sealed: sorted by key; the parts of a run hold ranges of keys, one after another

A block is a prefix (magic, counts, checksums), a head (key, time and size of each record: 32 bytes), and a body (the
values one after another, zstd-compressed where that helps). Who looks for keys reads heads only.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

import pyarrow as pa

from hirag_dist.core.text.normalize import encodable
from hirag_dist.storage.layout import LEDGER
from hirag_dist.types import ChatReply

LOG = re.compile(r"(?P<host>.+)-\d+-[0-9a-f]+\.log(?P<object>-[0-9a-f]+)?")
SEGMENT = re.compile(r"(?P<run>[0-9a-f]{16})-(?P<part>\d{5})\.seg")


def new_log() -> str:
    """Return a name that no log had before."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}.log"


def new_run() -> str:
    """Return an id that no run of segments had before."""
    return uuid.uuid4().hex[:16]


def segment_name(run: str, part: int = 0) -> str:
    """Return the name of a segment."""
    return f"{run}-{part:05d}.seg"


def path_of(name: str) -> str:
    """Return where a file is in the store."""
    return f"{LEDGER}/{name}"


MAGIC = b"HLB1"
PREFIX = struct.Struct("<4sIIIII")  # magic, records, bytes of the body raw, and stored, CRC of the head, of the body
ENTRY = struct.Struct("<20sdI")  # key, stored at, bytes of the value
KEY_BYTES = 20
_WORTH_COMPRESSING = 0.9  # vectors shrink by a tenth at most, and unpacking costs more than reading
_SIZE = struct.Struct("<I")


class Record(NamedTuple):
    """A stored reply. Records sort by key, then time, then value: the first of a key is the one that counts."""

    key: bytes
    at: float
    value: bytes


def keep_first(found: dict[bytes, Record], record: Record) -> None:
    """Put a record among those that are found; of several of a key the first one counts, wherever it is found."""
    known = found.get(record.key)
    found[record.key] = record if known is None else min(known, record)


class DamagedBlock(Exception):
    """Bytes that should be a block are not."""


def key_bytes(key: str) -> bytes:
    """Return a key in 20 bytes.

    Raises:
        ValueError: it is not 40 hexadecimal digits, in lower case.

    >>> key_bytes("00" * 19 + "ff")[-1]
    255
    """
    try:
        packed = bytes.fromhex(key)
    except ValueError:
        packed = b""
    if len(packed) != KEY_BYTES or packed.hex() != key:
        raise ValueError(f"a ledger key is 40 hexadecimal digits in lower case, not {key!r}")
    return packed


def pack_value(value: Mapping[str, Any]) -> bytes:
    """Return a value in bytes: its size as JSON, the JSON, and what is bytes in it as it is.

    Raises:
        TypeError: something in it is neither JSON nor bytes at the top level.
    """
    blobs = {name: item for name, item in value.items() if isinstance(item, bytes)}
    plain = {name: item for name, item in value.items() if name not in blobs}
    document = [plain, [[name, len(blob)] for name, blob in blobs.items()]] if blobs else plain
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return b"".join((_SIZE.pack(len(text)), text, *blobs.values()))


def unpack_value(data: bytes) -> dict[str, Any]:
    """Return the value that `pack_value` packed."""
    at = _SIZE.size + _SIZE.unpack_from(data)[0]
    document = json.loads(data[_SIZE.size : at].decode("utf-8", "surrogatepass"))
    if isinstance(document, dict):
        return document
    value, blobs = document
    for name, size in blobs:
        value[name] = data[at : at + size]
        at += size
    return dict(value)


def pack_block(records: Sequence[Record]) -> bytes:
    """Return records as a block, in the order given."""
    head = b"".join(ENTRY.pack(record.key, record.at, len(record.value)) for record in records)
    raw = b"".join(record.value for record in records)
    body = pa.compress(raw, codec="zstd", asbytes=True) if raw else raw
    if len(body) > _WORTH_COMPRESSING * len(raw):
        body = raw
    counts, body_crc = (MAGIC, len(records), len(raw), len(body)), zlib.crc32(body)
    head_crc = zlib.crc32(head, zlib.crc32(PREFIX.pack(*counts, 0, body_crc)))
    return PREFIX.pack(*counts, head_crc, body_crc) + head + body


@dataclass(frozen=True, slots=True)
class Head:
    """The first part of a block: all but the values."""

    n_records: int
    raw_bytes: int
    body_bytes: int
    body_crc: int
    entries: bytes

    @property
    def n_bytes(self) -> int:
        """Bytes of the whole block, this head among them."""
        return PREFIX.size + len(self.entries) + self.body_bytes

    def keys(self) -> Iterator[bytes]:
        """Yield the keys in the order of the records."""
        return (key for key, _, _ in ENTRY.iter_unpack(self.entries))


def head_bytes(data: bytes, at: int = 0) -> int:
    """Return how many bytes from `at` make up the prefix and head of the block that begins there.

    Raises:
        DamagedBlock: no block begins there.
    """
    if data[at : at + len(MAGIC)] != MAGIC or len(data) - at < PREFIX.size:
        raise DamagedBlock
    return PREFIX.size + int(PREFIX.unpack_from(data, at)[1]) * ENTRY.size


def unpack_head(data: bytes, at: int = 0) -> Head:
    """Return the head of the block that begins at `at`. Raises DamagedBlock where there is none or it is cut off."""
    size = head_bytes(data, at)
    magic, n_records, raw_bytes, body_bytes, crc, body_crc = PREFIX.unpack_from(data, at)
    entries = data[at + PREFIX.size : at + size]
    prefix = PREFIX.pack(magic, n_records, raw_bytes, body_bytes, 0, body_crc)
    if len(data) - at < size or zlib.crc32(entries, zlib.crc32(prefix)) != crc:
        raise DamagedBlock
    return Head(n_records, raw_bytes, body_bytes, body_crc, entries)


class Block:
    """A block in memory."""

    __slots__ = ("_entries", "_starts", "_values")

    def __init__(self, entries: bytes, values: bytes) -> None:
        self._entries = entries
        self._values = values
        self._starts = list(accumulate((size for _, _, size in ENTRY.iter_unpack(entries)), initial=0))

    @classmethod
    def unpack(cls, data: bytes, at: int = 0) -> Block:
        """Read the block that begins at `at`. Raises DamagedBlock where it is cut off or altered."""
        head = unpack_head(data, at)
        body = data[at + head.n_bytes - head.body_bytes : at + head.n_bytes]
        if len(body) != head.body_bytes or zlib.crc32(body) != head.body_crc:
            raise DamagedBlock
        if head.body_bytes != head.raw_bytes:
            body = pa.decompress(body, head.raw_bytes, codec="zstd", asbytes=True)
        return cls(head.entries, body)

    @property
    def memory_bytes(self) -> int:
        """Approximate memory use."""
        return len(self._entries) + len(self._values) + 36 * len(self._starts)

    def find(self, key: bytes) -> Record | None:
        """Return the record of a key that counts, None where there is none."""
        best: Record | None = None
        at = self._entries.find(key)
        while at >= 0:
            if at % ENTRY.size == 0:
                record = self._record(at // ENTRY.size)
                best = record if best is None else min(best, record)
            at = self._entries.find(key, at + 1)
        return best

    def __iter__(self) -> Iterator[Record]:
        return (self._record(number) for number in range(len(self._starts) - 1))

    def _record(self, number: int) -> Record:
        key, at, _ = ENTRY.unpack_from(self._entries, number * ENTRY.size)
        return Record(key, at, self._values[self._starts[number] : self._starts[number + 1]])


MAX_TOKENS = 10_000_000  # of one call: no model has a larger context window
_CHARS_PER_TOKEN = 4  # of English text, about


def record_of(reply: ChatReply, endpoint: str) -> dict[str, Any]:
    """Return the ledger record of a reply."""
    return {
        "text": reply.text,
        "finish_reason": reply.finish_reason,
        "model": reply.model,
        "usage": [reply.input_tokens, reply.cached_tokens, reply.output_tokens],
        "endpoint": endpoint,
    }


def part_record_of(pack: Mapping[str, Any], key: str, text: str, usage: list[int]) -> dict[str, Any]:
    """Return the ledger record of a unit's part of a pack's reply.

    Args:
        pack: the record of the whole reply; `key` is its ledger key.
        usage: the part's share of the input, cached and output tokens.
    """
    return dict(pack) | {"text": text, "finish_reason": "stop", "usage": usage, "pack": key}


def reply_from(record: Mapping[str, Any], n_prompt_chars: int = 0) -> ChatReply | None:
    """Return the reply of a record; None where it cannot be used, so that it counts as absent.

    A text that no table can hold is mended, as replies are before they are stored now, and token counts that cannot be
    true are estimated from the texts.

    Args:
        n_prompt_chars: Number of characters of the request, for such an estimate.
    """
    text, finish_reason, model = (record.get(key) for key in ("text", "finish_reason", "model"))
    if not (isinstance(text, str) and isinstance(finish_reason, str) and isinstance(model, str)):
        return None
    usage = record.get("usage")
    counts = [token_count(each) for each in usage] if isinstance(usage, list) and len(usage) == 3 else [None] * 3
    n_input, n_cached, n_output = counts
    if n_input is None or n_output is None or n_cached is None or n_cached > n_input:
        n_cached = 0
    return ChatReply(
        encodable(text),
        encodable(finish_reason),
        encodable(model),
        _estimated(n_prompt_chars) if n_input is None else n_input,
        n_cached,
        _estimated(len(text)) if n_output is None else n_output,
    )


def token_count(value: object) -> int | None:
    """Return a count of tokens; None for whatever cannot be one.

    >>> [token_count(each) for each in (12, 12.0, -1, 2**64 - 1, "12", True, None)]
    [12, 12, None, None, None, None, None]
    """
    if isinstance(value, float) and value.is_integer():  # neither infinity nor NaN
        value = int(value)
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKENS
    return value if usable and isinstance(value, int) else None


def _estimated(n_chars: int) -> int:
    return math.ceil(n_chars / _CHARS_PER_TOKEN)
