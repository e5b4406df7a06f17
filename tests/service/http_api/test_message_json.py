"""The JSON of messages, against that of protobuf's own library."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from google.protobuf import json_format, struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from hirag_dist.service.http_api.connect_protocol import METHODS
from hirag_dist.service.http_api.message_json import message_object
from hirag_dist.wire._pb import query_pb2 as pb

TEXTS = ("", "a", "灯台守", 'quote " and \n', "\u2028\x00")
NUMBERS = (0.0, -0.0, 1.0, 0.1, 1 / 3, 1e300, math.inf, -math.inf)
FLOATS = (0.0, 1.0, 0.1, 0.9, 1 / 3, 16777216.0, 1e-30, math.inf)


def filled(message: Any, choose: random.Random, depth: int = 0) -> Any:
    """Fill fields at random; messages hold themselves three levels deep."""
    for field in message.DESCRIPTOR.fields:
        if choose.random() < 0.3:
            continue
        entry = field.message_type is not None and field.message_type.GetOptions().map_entry
        held = getattr(message, field.name)
        if entry:
            value = field.message_type.fields_by_name["value"]
            for number in range(choose.randrange(3)):
                key = (
                    number
                    if field.message_type.fields_by_name["key"].cpp_type != field.CPPTYPE_STRING
                    else TEXTS[number]
                )
                if value.message_type is not None:
                    filled(held[key], choose, depth + 1)
                else:
                    held[key] = scalar(value, choose)
        elif field.message_type is not None:
            if depth < 3:
                for each in (held.add() for _ in range(2)) if field.is_repeated else [held]:
                    each.SetInParent()
                    filled(each, choose, depth + 1)
        elif field.is_repeated:
            held.extend(scalar(field, choose) for _ in range(choose.randrange(3)))
        else:
            setattr(message, field.name, scalar(field, choose))
    return message


def scalar(field: Any, choose: random.Random) -> Any:
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_STRING:
            return choose.choice(TEXTS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return choose.random() < 0.5
        case FieldDescriptor.CPPTYPE_DOUBLE:
            return choose.choice(NUMBERS)
        case FieldDescriptor.CPPTYPE_FLOAT:
            return choose.choice(FLOATS)
        case FieldDescriptor.CPPTYPE_ENUM:
            return choose.choice([value.number for value in field.enum_type.values] + [999])
        case FieldDescriptor.CPPTYPE_INT64:
            return choose.choice((0, -1, 2**63 - 1))
    return choose.choice((0, -1, 2**31 - 1))


@pytest.mark.parametrize("form", [each for method in METHODS.values() for each in (method.request, method.response)])
def test_the_same_as_of_the_library(form: Any) -> None:
    choose = random.Random(form.DESCRIPTOR.name)
    for _ in range(12):
        message = filled(form(), choose)
        wanted = json_format.MessageToDict(message, always_print_fields_with_no_presence=True)
        assert json.dumps(message_object(message), sort_keys=True) == json.dumps(wanted, sort_keys=True)
        assert json_format.ParseDict(message_object(message), form()) == message


def test_numbers_that_json_does_not_have() -> None:
    assert message_object(pb.Entity(score=math.nan))["score"] == "NaN"


def test_types_with_a_form_of_their_own() -> None:
    with pytest.raises(TypeError):
        message_object(struct_pb2.Value())
