"""Pages of the list of indexes that a caller may ask."""

from __future__ import annotations

import base64
import binascii
from bisect import bisect_right
from collections.abc import Sequence

from hirag_dist.errors import InvalidQuery
from hirag_dist.types import IndexEntry
from hirag_dist.wire._pb import query_pb2 as pb

_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000
_MAX_TOKEN_CHARACTERS = 256


def index_page(entries: Sequence[IndexEntry], request: pb.ListIndexesRequest) -> pb.ListIndexesResponse:
    """Return a page. A token is the last name of the page before it, so that indexes may come and go meanwhile.

    Args:
        entries: those that the caller may ask, ordered by name.
        request: size and token of the page.

    Raises:
        InvalidQuery: the size is negative, or the token is none of this service.
    """
    if request.page_size < 0:
        raise InvalidQuery(f"page_size must not be negative, got {request.page_size}")
    first = 0
    if request.page_token:
        first = bisect_right(entries, _name_of(request.page_token), key=lambda entry: entry.name)
    size = min(request.page_size or _PAGE_SIZE, _MAX_PAGE_SIZE)
    page = entries[first : first + size]
    more = first + size < len(entries)
    return pb.ListIndexesResponse(
        indexes=[pb.IndexEntry(name=entry.name, title=entry.title, default=entry.default) for entry in page],
        next_page_token=_token_of(page[-1].name) if more else "",
    )


def _token_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_of(token: str) -> str:
    try:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidQuery("page_token is none that ListIndexes returned; begin without one") from None
