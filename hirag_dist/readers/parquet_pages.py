"""Sizes of the pages of a Parquet column, read from the headers of the pages themselves.

Arrow reserves the size that a page's header names before it decompresses the page, and decodes as many values as the
header names. The footer of the file, which says the same about whole columns, may be wrong. So the headers are parsed
(Thrift's compact protocol) before Arrow reads the column.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

_HEADER_BYTES = 1 << 12
_MAX_HEADER_BYTES = 1 << 20  # statistics in a header may hold whole values
_MAX_DEPTH = 16
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 10, 11, 12
_UNCOMPRESSED, _COMPRESSED, _V1, _DICTIONARY, _V2 = 2, 3, 5, 7, 8  # fields of PageHeader
_NUM_VALUES = 1  # field of the header of each kind of page


class DamagedPage(ValueError):
    """The header of a page cannot be parsed."""


@dataclass(frozen=True, slots=True)
class PageSize:
    """A page of a column.

    Attributes:
        n_bytes: uncompressed.
        n_values: values, nulls and dictionary entries included.
    """

    n_bytes: int
    n_values: int


def column_pages(file: pa.NativeFile, start: int, n_bytes: int) -> Iterator[PageSize]:
    """Yield the pages of a column of a row group.

    Args:
        start, n_bytes: where the column lies, as the footer says.

    Raises:
        DamagedPage: a header is no header, or a page goes on beyond the column.
    """
    end = start + n_bytes
    while start < end:
        header_bytes = min(_HEADER_BYTES, end - start)
        while True:
            file.seek(start)
            data = file.read(header_bytes)
            try:
                fields, size = _Thrift(data).struct()
                break
            except (IndexError, struct.error):
                if header_bytes >= min(_MAX_HEADER_BYTES, end - start) or len(data) < header_bytes:
                    raise DamagedPage("the header of a page is damaged") from None
                header_bytes = min(header_bytes * 16, end - start)
        kind: Any = next((fields[key] for key in (_V1, _DICTIONARY, _V2) if isinstance(fields.get(key), dict)), {})
        n_values = kind.get(_NUM_VALUES, 0)
        sizes = (fields.get(_UNCOMPRESSED), fields.get(_COMPRESSED), n_values)
        if not all(isinstance(each, int) and each >= 0 for each in sizes):
            raise DamagedPage("the header of a page has no valid size")
        yield PageSize(fields[_UNCOMPRESSED], n_values)
        start += size + fields[_COMPRESSED]
    if start > end:
        raise DamagedPage("a page goes on beyond its column")


class _Thrift:
    """Reader of Thrift's compact protocol: structs as dicts from field number to value."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> tuple[dict[int, Any], int]:
        """Return a struct and its size in bytes.

        Raises:
            IndexError, struct.error: the data ends before the struct does.
            DamagedPage: it is no struct.
        """
        return self._struct(0), self._at

    def _byte(self) -> int:
        value = self._data[self._at]
        self._at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise DamagedPage("the header of a page has a number without end")

    def _zigzag(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, n_bytes: int) -> None:
        if self._at + n_bytes > len(self._data):
            raise IndexError
        self._at += n_bytes

    def _struct(self, depth: int) -> dict[int, Any]:
        if depth > _MAX_DEPTH:
            raise DamagedPage("the header of a page is nested too deeply")
        fields: dict[int, Any] = {}
        number = 0
        while True:
            byte = self._byte()
            kind = byte & 0x0F
            if kind == _STOP:
                return fields
            number = number + (byte >> 4) if byte >> 4 else self._zigzag()
            fields[number] = self._value(kind, depth, in_list=False)

    def _value(self, kind: int, depth: int, *, in_list: bool) -> Any:
        if kind in (_TRUE, _FALSE):
            if in_list:
                self._skip(1)
            return kind == _TRUE
        if kind == _BYTE:
            return self._byte()
        if _BYTE < kind < _DOUBLE:
            return self._zigzag()
        if kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._varint())
        elif kind in (_LIST, _SET):
            byte = self._byte()
            for _ in range(byte >> 4 if byte >> 4 < 15 else self._varint()):
                self._value(byte & 0x0F, depth + 1, in_list=True)
        elif kind == _MAP:
            if n_pairs := self._varint():
                byte = self._byte()
                for _ in range(n_pairs):
                    self._value(byte >> 4, depth + 1, in_list=True)
                    self._value(byte & 0x0F, depth + 1, in_list=True)
        elif kind == _STRUCT:
            return self._struct(depth + 1)
        else:
            raise DamagedPage("the header of a page has a field of an unknown type")
        return None
