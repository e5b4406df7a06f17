"""Records of the package as messages of query.proto, and back. A record and its message have fields of equal names.

Texts that protobuf cannot hold (lone surrogates), as an imported snapshot may have, become U+FFFD in messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args, get_type_hints

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from hirag_dist.wire._pb import query_pb2 as pb

M = TypeVar("M", bound=Message)
T = TypeVar("T")
_Convert = Callable[[Any], Any]


_IN_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_UNKNOWN_FIELD = re.compile(
    r'Message type "[\w.]*?(\w+)" has no field named "(.*?)" at .* Available Fields\(except extensions\): "\[(.*)\]"'
)
_UNKNOWN_NAME = re.compile(r"Invalid enum value (.*) for enum type hirag\.query\.v1\.(\w+) at ")


def enum_names(enum: Any, prefix: str) -> Mapping[str, Any]:
    """Return name → number of an enumeration, without the number 0: MODE_TEXT_MAP_REDUCE is text-map-reduce."""
    return {name.removeprefix(prefix).lower().replace("_", "-"): number for name, number in enum.items() if number}


MODES = enum_names(pb.Mode, "MODE_")
MODE_NAMES: Mapping[int, str] = {number: name for name, number in MODES.items()}
_TYPES = enum_names(pb.FieldType, "FIELD_TYPE_")
_TYPE_NAMES = {number: name for name, number in _TYPES.items()}
_WRITTEN_ENUMS: Mapping[str, _Convert] = {"Mode": MODES.__getitem__, "FieldType": lambda name: _TYPES.get(name, 0)}
_READ_ENUMS: Mapping[str, _Convert] = {  # a later server may send another number
    "Mode": lambda number: MODE_NAMES.get(number, f"mode {number}"),
    "FieldType": lambda number: _TYPE_NAMES.get(number, f"type {number}"),
}


def json_fault(error: Exception) -> str:
    """Return what protobuf's parser found wrong with a JSON object, as one line with the place.

    >>> from google.protobuf.json_format import Parse
    >>> try:
    ...     Parse('{"query": {"topX": 1}}', pb.AnswerRequest())
    ... except Exception as error:
    ...     json_fault(error)  # doctest: +ELLIPSIS
    "query: Unknown field 'topX' in Query; known fields: question, mode, topN, ..."
    """
    place, rest = [], " ".join(str(error).split())
    while part := _IN_FIELD.match(rest):
        place.append(part[1])
        rest = rest[part.end() :]
    if found := _UNKNOWN_FIELD.match(rest):
        known = found[3].replace("'", "")
        rest = f"Unknown field {found[2]!r} in {found[1]}; known fields: {known}"
    elif found := _UNKNOWN_NAME.match(rest):
        enum = pb.DESCRIPTOR.enum_types_by_name[found[2]]
        rest = f"Invalid value {found[1]!r}; expected one of {', '.join(enum.values_by_name)}"
    return ": ".join([*[".".join(place)][: len(place)], rest.rstrip(".")])


def message_of(kind: type[M], **values: Any) -> M:
    """Return a message with these fields; texts that it cannot hold are made valid."""
    try:
        return kind(**values)
    except UnicodeEncodeError:
        return kind(**_cleaned(values))


def message_fields(record: Any, kind: type[Message], without: str = "") -> dict[str, Any]:
    """Return the fields of a message for a record, as the message's constructor takes them. Nested ones are dicts.

    Args:
        without: field that is left out.
    """
    form: Any = type(record)
    found: dict[str, Any] = _writer(form, kind.DESCRIPTOR, without)(record)
    return found


def record_of(kind: type[T], message: Message) -> T:
    """Return the record of a message, which has fields of the same names."""
    form: Any = kind
    found: T = _reader(form, message.DESCRIPTOR)(message)
    return found


@cache
def _writer(record: type, message: Descriptor, without: str = "") -> _Convert:
    """Return the function that returns the fields of a message."""
    described = [field for field in message.fields if hasattr(record, field.name) and field.name != without]
    names = [field.name for field in described]
    get = attrgetter(*names)
    writes = {field.name: _written(field) for field in described}
    converts = [(name, convert) for name, convert in writes.items() if convert is not None]

    def write(value: Any) -> dict[str, Any]:
        found = dict(zip(names, get(value), strict=True))
        for name, convert in converts:
            found[name] = convert(found[name])
        return found

    return write


@cache
def _reader(record: type, message: Descriptor) -> _Convert:
    """Return the function that returns the record of a message. Fields that the message lacks have their defaults."""
    hints = get_type_hints(record)
    described = [message.fields_by_name[each.name] for each in fields(record) if each.name in message.fields_by_name]
    names = [field.name for field in described]
    get = attrgetter(*names)
    optional = [(at, name) for at, name in enumerate(names) if described[at].has_presence]
    reads = [(at, _read(field, hints[field.name])) for at, field in enumerate(described)]
    converts = [(at, convert) for at, convert in reads if convert is not None]
    leads = names == [each.name for each in fields(record)][: len(names)]

    def read(value: Any) -> Any:
        found = list(get(value))
        for at, name in optional:
            if not value.HasField(name):
                found[at] = None
        for at, convert in converts:
            if found[at] is not None:
                found[at] = convert(found[at])
        return record(*found) if leads else record(**dict(zip(names, found, strict=True)))

    return read


def _written(field: FieldDescriptor) -> _Convert | None:
    """Return the converter of a field of a record, None for a value that stays as it is."""
    if field.enum_type is not None:
        return _WRITTEN_ENUMS[field.enum_type.name]
    kind = field.message_type
    if kind is None:
        return None
    if kind.GetOptions().map_entry:
        return dict if kind.fields_by_name["value"].message_type is None else values_to_proto
    one = _WRITTEN_MESSAGES.get(kind.name)
    if field.is_repeated:
        return lambda items: [*map(one or _writer(cast(Any, type(items[0])), kind), items)] if items else []
    return lambda item: None if item is None else (one or _writer(cast(Any, type(item)), kind))(item)


def _read(field: FieldDescriptor, hint: Any) -> _Convert | None:
    """Return the converter of a field of a message, None for a value that stays as it is."""
    if field.enum_type is not None:
        return _READ_ENUMS[field.enum_type.name]
    kind = field.message_type
    if kind is None:
        return tuple if field.is_repeated else None
    if kind.GetOptions().map_entry:
        values = kind.fields_by_name["value"].message_type is not None
        return values_from_proto if values else lambda entries: dict(sorted(entries.items()))
    if kind.name in _READ_MESSAGES:
        one = _READ_MESSAGES[kind.name]
    else:
        (record,) = [each for each in (hint, *get_args(hint)) if isinstance(each, type) and is_dataclass(each)]
        one = _reader(record, kind)
    return (lambda messages: tuple(map(one, messages))) if field.is_repeated else one


def values_to_proto(values: Mapping[str, Any]) -> dict[str, pb.Value]:
    """Return values, such as those of a document's metadata, as messages by field."""
    return {
        name: pb.Value(list=pb.ListValue(values=map(scalar_to_proto, value)))
        if isinstance(value, (list, tuple))
        else scalar_to_proto(value)
        for name, value in values.items()
    }


def values_from_proto(messages: Mapping[str, pb.Value]) -> dict[str, Any]:
    """Return values by field, in the order of names."""
    return {name: value_from_proto(messages[name]) for name in sorted(messages)}


def scalar_to_proto(value: Any) -> pb.Value:
    """Return the message for a value that is no list; None is unknown.

    Raises:
        TypeError: it is no number, text or boolean.
    """
    plain = value.item() if hasattr(value, "item") else value  # numpy's scalars
    match plain:
        case None:
            return pb.Value()
        case bool():
            return pb.Value(flag=plain)
        case int():
            return pb.Value(integer=plain)
        case float():
            return pb.Value(number=plain)
        case str():
            return pb.Value(text=valid_text(plain))
    raise TypeError(f"a value must be a number, a text or a boolean, got {type(plain).__name__}")


def value_from_proto(value: pb.Value) -> Any:
    """Return the value of a message: None for an unknown one, a tuple for a list."""
    kind = value.WhichOneof("kind")
    if kind == "list":
        return tuple(map(value_from_proto, value.list.values))
    return None if kind is None else getattr(value, kind)


_WRITTEN_MESSAGES: Mapping[str, _Convert] = {  # whose records have another form
    "Value": scalar_to_proto,
    "FacetValue": lambda pair: {"value": scalar_to_proto(pair[0]), "documents": pair[1]},
    "Layer": lambda layer: {"values": {name: scalar_to_proto(value) for name, value in layer.items()}},
}
_READ_MESSAGES: Mapping[str, _Convert] = {
    "Value": value_from_proto,
    "FacetValue": lambda message: (value_from_proto(message.value), message.documents),
    "Layer": lambda message: values_from_proto(message.values),
}


def valid_text(text: str) -> str:
    """Return a text with U+FFFD in the place of what protobuf cannot hold (lone surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text


def _cleaned(value: Any) -> Any:
    """Return fields of a message with every text made valid."""
    match value:
        case str():
            return valid_text(value)
        case Mapping():
            return {_cleaned(key): _cleaned(item) for key, item in value.items()}
        case Sequence():
            return tuple(map(_cleaned, value))
    return value
