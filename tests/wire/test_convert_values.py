"""Values → messages → values."""

from __future__ import annotations

import pytest

from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_values import (
    facet_from_proto,
    metadata_from_proto,
    metadata_to_proto,
    scalar_to_proto,
    valid_text,
)


def test_metadata_comes_back_in_the_order_of_names() -> None:
    metadata = {"tags": ("a", "b"), "pages": 2.5, "draft": False, "source": "wiki", "none": ()}
    found = metadata_from_proto(pb.Source(metadata=metadata_to_proto(metadata)).metadata)
    assert found == metadata
    assert list(found) == sorted(metadata)


def test_a_value_of_another_type_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        scalar_to_proto(b"x")


def test_a_field_type_of_a_later_server_is_kept_readable() -> None:
    assert facet_from_proto(pb.Facet(name="place", type=9)).type == "type 9"  # type: ignore[arg-type]


def test_a_lone_surrogate_is_replaced() -> None:
    assert valid_text("half \ud83d") == "half \ufffd\ufffd\ufffd"
    assert valid_text("whole \U0001f600") == "whole \U0001f600"
