"""Places → messages → places."""

from __future__ import annotations

from hirag_dist.types import Box, Place
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.convert_places import add_places, places_from_proto


def test_places_come_back_equal() -> None:
    page = Place(0, 90, "page", "p. vii", 7, "vii", boxes=(Box(0.25, 0.5, 0.75, 1.0),), link="manual.pdf#page=7")
    row = Place(90, 120, "sheet", "Prices, row 12", section="Prices", row=12)
    message = pb.Source()
    add_places(message.places.add, (page, row))
    assert places_from_proto(pb.Source.FromString(message.SerializeToString()).places) == (page, row)
