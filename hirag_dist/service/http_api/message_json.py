"""Messages as objects for JSON, by the mapping of Protocol Buffers, with converters that are made once for each type.

`google.protobuf.json_format` looks up every field of every message again, which takes three times as long. The results
are those of its `MessageToDict` with `always_print_fields_with_no_presence`.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

_Convert: TypeAlias = Callable[[Any], Any]
_WIDE = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def message_object(message: Message) -> dict[str, Any]:
    """Return a message as an object; fields without presence are always there.

    Raises:
        TypeError: it has a field of bytes, or one of the well-known types, which the service has none of.
    """
    found: dict[str, Any] = _converter(message.DESCRIPTOR)(message)
    return found


@cache
def _converter(descriptor: Descriptor) -> _Convert:
    if descriptor.full_name.startswith("google.protobuf."):
        raise TypeError(f"{descriptor.full_name} has a form of its own in JSON")
    always: list[tuple[str, str, _Convert | None]] = []
    present: list[tuple[str, str, _Convert | None]] = []
    for field in descriptor.fields:
        entry = (field.json_name, field.name, _of_field(field))
        (present if field.has_presence else always).append(entry)

    def convert(message: Any) -> dict[str, Any]:
        found = {
            key: getattr(message, name) if one is None else one(getattr(message, name)) for key, name, one in always
        }
        for key, name, one in present:
            if message.HasField(name):
                value = getattr(message, name)
                found[key] = value if one is None else one(value)
        return found

    return convert


def _of_field(field: FieldDescriptor) -> _Convert | None:
    """Return the converter of a field's value, None for a value that stays as it is."""
    one = _of_value(field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _of_map(field.message_type.fields_by_name["value"])
    if not field.is_repeated:
        return one
    return list if one is None else lambda value: [one(each) for each in value]


def _of_map(field: FieldDescriptor) -> _Convert:
    one = _of_value(field) or _same
    return lambda value: {_key(key): one(value[key]) for key in value}


def _same(value: Any) -> Any:
    return value


def _of_value(field: FieldDescriptor) -> _Convert | None:
    if field.type == FieldDescriptor.TYPE_BYTES:
        raise TypeError(f"{field.full_name} holds bytes")
    if field.message_type is not None:
        return _later(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in field.enum_type.values}
        return lambda value: names.get(value, value)
    if field.cpp_type in _WIDE:
        return str
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return lambda value: _number(_shortest(value))
    return _number if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE else None


def _later(descriptor: Descriptor) -> _Convert:
    """Return a converter that is made when it is first used: a message may hold its own type."""
    return lambda value: _converter(descriptor)(value)


def _number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shortest(value: float) -> float:
    """Return the number with the fewest digits that is the same as a 32-bit float."""
    for digits in range(6, 9):
        rounded = float(f"{value:.{digits}g}")
        if struct.unpack("<f", struct.pack("<f", rounded))[0] == value:
            return rounded
    return value if math.isnan(value) else float(f"{value:.9g}")


def _key(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)
