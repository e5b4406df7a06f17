"""Matrices out of files of models, without the libraries that wrote them: safetensors, and constants of ONNX."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import prod

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

_ONNX_TYPES = {1: "<f4", 3: "i1"}  # of TensorProto.DataType, those of weights
_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # of TensorProto


def read_safetensors(data: memoryview) -> dict[str, Array]:
    """Return the float32 matrices of a safetensors file, as views.

    Raises:
        ValueError: it is no such file.
    """
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(bytes(data[8:start]))
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            first, last = entry["data_offsets"]
            found[name] = np.frombuffer(data[start + first : start + last], "<f4").reshape(entry["shape"])
    return found


def read_onnx(data: memoryview) -> dict[str, NDArray[np.float32] | NDArray[np.int8]]:
    """Return the float32 and int8 constants of an ONNX file by name, as views, in the order of the file.

    Raises:
        ValueError: it is no such file.
    """
    found = {}
    for field, graph in _fields(data):
        if field != _GRAPH or isinstance(graph, int):
            continue
        for part, tensor in _fields(graph):
            if part == _INITIALIZER and not isinstance(tensor, int):
                named = _tensor(tensor)
                if named is not None:
                    found[named[0]] = named[1]
    return found


def _tensor(data: memoryview) -> tuple[str, NDArray[np.float32] | NDArray[np.int8]] | None:
    shape: list[int] = []
    kind, name, raw = 0, "", None
    for field, value in _fields(data):
        if isinstance(value, int):
            shape += [value] if field == _DIMS else []
            kind = value if field == _TYPE else kind
        elif field == _NAME:
            name = bytes(value).decode()
        elif field == _RAW:
            raw = value
    if raw is None or kind not in _ONNX_TYPES or len(raw) != prod(shape) * np.dtype(_ONNX_TYPES[kind]).itemsize:
        return None
    return name, np.frombuffer(raw, _ONNX_TYPES[kind]).reshape(shape)


def _fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield the fields of a Protocol Buffers message: numbers as they are, all else as bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire = key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if wire == 2:
            size, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if at + size > len(data):
            raise ValueError("the file is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("the file is cut off")
