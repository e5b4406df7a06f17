"""Conversion of values between protobuf messages and Python: metadata, facets, properties of layers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hirag_dist.types import Facet
from hirag_dist.wire._pb import query_pb2 as pb

FIELD_TYPES: Mapping[str, Any] = {
    name.removeprefix("FIELD_TYPE_").lower(): number
    for name, number in pb.FieldType.items()
    if number != pb.FIELD_TYPE_UNSPECIFIED
}
_FIELD_TYPE_NAMES: Mapping[int, str] = {number: name for name, number in FIELD_TYPES.items()}


def facet_to_proto(facet: Facet) -> pb.Facet:
    """Return the message for a facet."""
    return pb.Facet(
        name=facet.name,
        type=FIELD_TYPES.get(facet.type, pb.FIELD_TYPE_UNSPECIFIED),
        list=facet.list,
        documents=facet.documents,
        min=None if facet.min is None else scalar_to_proto(facet.min),
        max=None if facet.max is None else scalar_to_proto(facet.max),
        distinct=facet.distinct,
        values=[pb.FacetValue(value=scalar_to_proto(value), documents=count) for value, count in facet.values],
    )


def facet_from_proto(message: pb.Facet) -> Facet:
    """Return the facet of a message."""
    return Facet(
        name=message.name,
        type=_FIELD_TYPE_NAMES.get(message.type, f"type {message.type}"),
        list=message.list,
        documents=message.documents,
        min=value_from_proto(message.min) if message.HasField("min") else None,
        max=value_from_proto(message.max) if message.HasField("max") else None,
        distinct=message.distinct,
        values=tuple((value_from_proto(one.value), one.documents) for one in message.values),
    )


def metadata_to_proto(metadata: Mapping[str, Any]) -> dict[str, pb.Value]:
    """Return the values of a document's metadata as messages, by field."""
    return {
        name: pb.Value(list=pb.ListValue(values=map(scalar_to_proto, value)))
        if isinstance(value, (list, tuple))
        else scalar_to_proto(value)
        for name, value in metadata.items()
    }


def metadata_from_proto(messages: Mapping[str, pb.Value]) -> dict[str, Any]:
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


def valid_text(text: str) -> str:
    """Return a text with U+FFFD in the place of what protobuf cannot hold (lone surrogates)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    return text
