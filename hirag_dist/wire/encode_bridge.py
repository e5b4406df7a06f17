"""Key entities and paths of a retrieval as bytes of `hirag.query.v1.Retrieval`, from the mapped columns.

The bytes of repeated fields may stand anywhere in a message (protobuf encoding, "Field order"), so these follow those
of the other fields. They are what protobuf writes for the items of `convert_items`, without an object for each.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled_bare, read_only
from hirag_dist.types import IntVector
from hirag_dist.types.mapped_bridge import MappedBridge, MappedTexts
from hirag_dist.wire._pb import query_pb2 as pb

_ID, _NAME, _TYPE, _DESCRIPTION = range(4)  # columns of `MappedTexts`
_LENGTH_DELIMITED: Final = 2  # wire types
_FIXED64: Final = 1
_GUESSED_BYTES: Final = 64 << 10
_INVALID: Final = -1


def _tag(message: Any, field: str, wire_type: int = _LENGTH_DELIMITED) -> int:
    number: int = message.DESCRIPTOR.fields_by_name[field].number
    assert number < 16  # the tag is one byte
    return number << 3 | wire_type


_RETRIEVAL = _tag(pb.RetrieveResponse, "retrieval")
_KEY_ENTITIES = _tag(pb.Retrieval, "key_entities")
_PATHS = _tag(pb.Retrieval, "paths")
_ENTITY_ID, _ENTITY_NAME, _ENTITY_TYPE, _ENTITY_DESCRIPTION = (
    _tag(pb.Entity, field) for field in ("entity_id", "name", "type", "description")
)
_ENTITY_TEXTS = (
    (_ID, _ENTITY_ID),
    (_NAME, _ENTITY_NAME),
    (_TYPE, _ENTITY_TYPE),
    (_DESCRIPTION, _ENTITY_DESCRIPTION),
)
_ENTITY_LAYER = _tag(pb.Entity, "layer", 0)
_ENTITY_SCORE = _tag(pb.Entity, "score", _FIXED64)
_SOURCE_ID, _TARGET_ID, _ENTITY_IDS, _ENTITY_NAMES = (
    _tag(pb.Path, field) for field in ("source_id", "target_id", "entity_ids", "entity_names")
)
_CONNECTED = _tag(pb.Path, "connected", 0)


def bridge_fields(bridge: MappedBridge) -> bytes | None:
    """Return the fields `key_entities` and `paths`; None where a text is no valid UTF-8, which protobuf cannot hold."""
    texts = bridge.texts
    scores = np.ascontiguousarray(bridge.scores, "<f8").view(np.uint8)
    found = np.empty(_GUESSED_BYTES, np.uint8)
    while True:
        size = _encode(
            read_only(texts.data),
            texts.places,
            texts.widths,
            texts.batch_rows,
            read_only(texts.replaced),
            texts.replaced_places,
            read_only(bridge.layers),
            bridge.keys,
            scores,
            bridge.path_ends,
            bridge.nodes,
            found,
        )
        if size == _INVALID:
            return None
        if size <= len(found):
            return found[:size].tobytes()
        found = np.empty(size, np.uint8)


def compile_encoder() -> None:
    """Compile the encoder, or load it from the cache, so that the first reply does not wait."""
    none = np.zeros(0, np.int64)
    bytes_ = np.zeros(0, np.uint8)
    texts = MappedTexts(
        bytes_, np.zeros((4, 0, 2), np.int64), np.zeros(4, np.int64), 1, bytes_, np.zeros((0, 4, 2), np.int64)
    )
    bridge_fields(MappedBridge(texts, np.zeros(0, np.int32), none, np.zeros(0), none, none))
    retrieve_response(pb.Retrieval(), b"")


def retrieve_response(retrieval: pb.Retrieval, more: bytes) -> bytes:
    """Return the bytes of a `RetrieveResponse`.

    Args:
        retrieval: its field.
        more: further fields of the same message, as `bridge_fields` returns them.
    """
    body = retrieval.SerializeToString()
    header = np.empty(11, np.uint8)
    size = _varint(header, _byte(header, 0, _RETRIEVAL), len(body) + len(more))
    return b"".join((header[:size].tobytes(), body, more))


@compiled_bare
def _encode(
    data: NDArray[np.uint8],
    places: NDArray[np.int64],
    widths: NDArray[np.int64],
    batch_rows: int,
    replaced: NDArray[np.uint8],
    replaced_places: NDArray[np.int64],
    layers: NDArray[np.int32],
    keys: IntVector,
    scores: NDArray[np.uint8],
    path_ends: IntVector,
    nodes: IntVector,
    found: NDArray[np.uint8],
) -> Any:
    """Write both fields as far as there is room; return their bytes, or -1 for a text that is no UTF-8.

    Args:
        data, places, widths, batch_rows, replaced, replaced_places: as of `MappedTexts`.
        layers, keys, path_ends, nodes: as of `MappedBridge`.
        scores: (8 n_keys,) bytes of the scores.
        found: where they are written.
    """
    at = 0
    for key in range(len(keys)):
        row, layer = keys[key], layers[key]
        size = 9
        for column in (_ID, _NAME, _TYPE, _DESCRIPTION):
            size += _text_size(_span(data, places, widths, batch_rows, replaced_places, column, row))
        if layer:
            size += 1 + _varint_size(layer)
        if at + 6 + size > len(found):  # 6: the tag, and the most that a length takes
            at += 6 + size
            continue
        at = _varint(found, _byte(found, at, _KEY_ENTITIES), size)
        for column, tag in _ENTITY_TEXTS:
            first, last = _span(data, places, widths, batch_rows, replaced_places, column, row)
            if last > first:  # protobuf leaves empty texts out
                at = _text(replaced if row < 0 else data, first, last, found, at, tag)
                if at == _INVALID:
                    return _INVALID
        if layer:
            at = _varint(found, _byte(found, at, _ENTITY_LAYER), layer)
        at = _byte(found, at, _ENTITY_SCORE)
        for byte in range(8 * key, 8 * key + 8):
            at = _byte(found, at, scores[byte])
    begins = 0
    for path in range(len(path_ends)):
        ends = path_ends[path]
        size = 2 if ends > begins else 0
        for row in (keys[path], keys[path + 1]):
            size += _text_size(_span(data, places, widths, batch_rows, replaced_places, _ID, row))
        for hop in range(begins, ends):
            for column in (_ID, _NAME):
                first, last = _span(data, places, widths, batch_rows, replaced_places, column, nodes[hop])
                size += 1 + _varint_size(last - first) + last - first  # empty ones of a list are kept
        if at + 6 + size > len(found):
            at += 6 + size
            begins = ends
            continue
        at = _varint(found, _byte(found, at, _PATHS), size)
        for row, tag in ((keys[path], _SOURCE_ID), (keys[path + 1], _TARGET_ID)):
            first, last = _span(data, places, widths, batch_rows, replaced_places, _ID, row)
            if last > first:
                at = _text(replaced if row < 0 else data, first, last, found, at, tag)
                if at == _INVALID:
                    return _INVALID
        for column, tag in ((_ID, _ENTITY_IDS), (_NAME, _ENTITY_NAMES)):
            for hop in range(begins, ends):
                first, last = _span(data, places, widths, batch_rows, replaced_places, column, nodes[hop])
                at = _text(replaced if nodes[hop] < 0 else data, first, last, found, at, tag)
                if at == _INVALID:
                    return _INVALID
        if ends > begins:
            at = _byte(found, _byte(found, at, _CONNECTED), 1)
        begins = ends
    return at


@compiled_bare
def _span(
    data: NDArray[np.uint8],
    places: NDArray[np.int64],
    widths: NDArray[np.int64],
    batch_rows: int,
    replaced_places: NDArray[np.int64],
    column: int,
    row: int,
) -> Any:
    """Return where a value begins and ends; the texts of a negative row are in `replaced`."""
    if row < 0:
        return replaced_places[-1 - row, column, 0], replaced_places[-1 - row, column, 1]
    batch, width = row // batch_rows, widths[column]
    offset = places[column, batch, 0] + width * (row % batch_rows)
    first = last = places[column, batch, 1]
    for byte in range(width):
        first += np.int64(data[offset + byte]) << (8 * byte)
        last += np.int64(data[offset + width + byte]) << (8 * byte)
    return first, last


@compiled_bare
def _text_size(span: tuple[int, int]) -> Any:
    """Return the bytes of a field that is left out where its text is empty."""
    length = span[1] - span[0]
    return 1 + _varint_size(length) + length if length else 0


@compiled_bare
def _varint_size(value: int) -> Any:
    size = 1
    while value > 127:
        value >>= 7
        size += 1
    return size


@compiled_bare
def _byte(found: NDArray[np.uint8], at: int, value: int) -> Any:
    found[at] = value
    return at + 1


@compiled_bare
def _varint(found: NDArray[np.uint8], at: int, value: int) -> Any:
    while value > 127:
        found[at] = value & 127 | 128
        value >>= 7
        at += 1
    found[at] = value
    return at + 1


@compiled_bare
def _text(data: NDArray[np.uint8], first: int, last: int, found: NDArray[np.uint8], at: int, tag: int) -> Any:
    """Write a field with a text; return where it ends, or -1 if the text is no UTF-8 (Unicode, table 3-7)."""
    at = _varint(found, _byte(found, at, tag), last - first)
    while first < last:
        lead = data[first]
        if lead < 0x80:
            found[at] = lead
            at += 1
            first += 1
            continue
        length = 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        if lead < 0xC2 or lead > 0xF4 or first + length > last:
            return _INVALID
        second = data[first + 1]
        if (
            (lead == 0xE0 and second < 0xA0)
            or (lead == 0xED and second > 0x9F)
            or (lead == 0xF0 and second < 0x90)
            or (lead == 0xF4 and second > 0x8F)
        ):
            return _INVALID
        found[at] = lead
        for more in range(1, length):
            if data[first + more] < 0x80 or data[first + more] > 0xBF:
                return _INVALID
            found[at + more] = data[first + more]
        at += length
        first += length
    return at
