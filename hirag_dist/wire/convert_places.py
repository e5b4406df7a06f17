"""Conversion of positions in originals between protobuf messages and the package's records, both ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from hirag_dist.types import Box, Place
from hirag_dist.wire._pb import query_pb2 as pb


def add_places(add: Callable[..., pb.Place], places: Iterable[Place]) -> None:
    """Add places to a repeated field in place.

    Args:
        add: the field's method.
        places: whose texts protobuf can hold.
    """
    for place in places:
        message = add(
            start=place.start,
            end=place.end,
            kind=place.kind,
            display=place.display,
            page=place.page,
            page_label=place.page_label,
            section=place.section,
            anchor=place.anchor,
            row=place.row,
            link=place.link,
        )
        for box in place.boxes:
            message.boxes.add(left=box.left, top=box.top, right=box.right, bottom=box.bottom)


def places_from_proto(messages: Iterable[pb.Place]) -> tuple[Place, ...]:
    """Return the places of messages."""
    return tuple(
        [
            Place(
                one.start,
                one.end,
                one.kind,
                one.display,
                one.page,
                one.page_label,
                one.section,
                one.anchor,
                one.row,
                tuple([Box(box.left, box.top, box.right, box.bottom) for box in one.boxes]),
                one.link,
            )
            for one in messages
        ]
    )
