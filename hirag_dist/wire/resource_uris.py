"""URIs of documents, entities and reports, as MCP and citations name them: hirag://INDEX/documents/ID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from hirag_dist.errors import InvalidQuery

SCHEME: Final = "hirag"
DEFAULT_INDEX: Final = "default"  # in place of the index of requests that name none
KINDS: Final = ("documents", "entities", "reports")
_NUMBERS: Final = ("start", "max_chars")


@dataclass(frozen=True, slots=True)
class ResourceAddress:
    """The parts of a resource's URI.

    Attributes:
        index: name of the index; empty for the default one.
        kind: documents, entities or reports; empty for the index itself.
        key: id, or the name of an entity; empty for the index itself.
        start, max_chars: part of a document; None where the URI has none.
    """

    index: str
    kind: str = ""
    key: str = ""
    start: int | None = None
    max_chars: int | None = None


def resource_uri(index: str, kind: str = "", key: str = "") -> str:
    """Return the URI of a resource.

    >>> resource_uri("", "entities", "Ada Byron"), resource_uri("law/de")
    ('hirag://default/entities/Ada%20Byron', 'hirag://law%2Fde')
    """
    root = f"{SCHEME}://{quote(index or DEFAULT_INDEX, safe='')}"
    return f"{root}/{kind}/{quote(key, safe='')}" if kind else root


def parse_uri(uri: str) -> ResourceAddress:
    """Return the parts of a URI.

    Raises:
        InvalidQuery: it is no URI of a resource.

    >>> parse_uri("hirag://default/documents/d1?start=10")
    ResourceAddress(index='', kind='documents', key='d1', start=10, max_chars=None)
    """
    try:
        parts = urlsplit(uri)
        query = parse_qs(parts.query, strict_parsing=bool(parts.query))
        numbers = {name: int(values[-1]) for name, values in query.items() if name in _NUMBERS}
    except ValueError:
        raise InvalidQuery(_unknown(uri)) from None
    kind, _, key = parts.path.strip("/").partition("/")
    known = kind in KINDS and key and "/" not in key if kind else not key
    if parts.scheme != SCHEME or not parts.netloc or not known or query.keys() - set(_NUMBERS):
        raise InvalidQuery(_unknown(uri))
    index = unquote(parts.netloc)
    return ResourceAddress("" if index == DEFAULT_INDEX else index, kind, unquote(key), **numbers)


def _unknown(uri: str) -> str:
    return (
        f"uri: {uri[:200]!r} is no resource; there are {SCHEME}://INDEX and {SCHEME}://INDEX/KIND/ID, with KIND one of "
        f"{', '.join(KINDS)}"
    )
