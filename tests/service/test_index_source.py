"""Indexes by name at a service with one index: only the empty name is its."""

from __future__ import annotations

import grpc
import pytest

from hirag_dist.client.common import service_stub
from hirag_dist.service.hot_swap import index_page
from hirag_dist.types import IndexEntry
from hirag_dist.wire._pb import query_pb2 as pb
from tests.service import fakes

QUERY = pb.Query(question="Who lit the lamp?")


@pytest.mark.parametrize("method", ["Retrieve", "RetrieveStream", "Answer", "DescribeIndex"])
async def test_a_service_with_one_index_has_none_of_any_name(
    start: fakes.Start, engine: fakes.FakeEngine, method: str
) -> None:
    service = await start(engine)
    request = getattr(pb, f"{method}Request")(index="acme")
    if method != "DescribeIndex":
        request.query.CopyFrom(QUERY)
    async with fakes.channel(service) as channel:
        call = getattr(service_stub(channel), method)(request)
        with pytest.raises(
            grpc.aio.AioRpcError, match="index: there is no 'acme' among those that you may ask"
        ) as caught:
            await (call if method in ("Retrieve", "DescribeIndex") else call.read())
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert engine.queries == []


ENTRIES = [IndexEntry(f"index-{number:04}", title=f"Index {number}") for number in range(250)]


def pages(size: int, entries: list[IndexEntry] = ENTRIES) -> list[list[str]]:
    """The names on each page."""
    found, token = [], ""
    while True:
        page = index_page(entries, pb.ListIndexesRequest(page_size=size, page_token=token))
        found.append([entry.name for entry in page.indexes])
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("size", [0, 1, 99, 125, 250, 1000, 2**31 - 1])
def test_pages_hold_every_index_once(size: int) -> None:
    found = pages(size)
    assert [name for page in found for name in page] == [entry.name for entry in ENTRIES]
    assert max(map(len, found)) == min(size or 100, 1000, 250)
    assert len(found) == -(-250 // (size or 100)) or size > 250
    assert pages(size, []) == [[]]


def test_an_index_that_comes_or_goes_between_two_pages_moves_no_other() -> None:
    first = index_page(ENTRIES, pb.ListIndexesRequest(page_size=100))
    later = [IndexEntry("a-new-one"), *ENTRIES[1:99], *ENTRIES[100:]]
    second = index_page(later, pb.ListIndexesRequest(page_size=100, page_token=first.next_page_token))
    assert [entry.name for entry in second.indexes] == [entry.name for entry in ENTRIES[100:200]]
