"""URIs of documents, entities and reports, as MCP and citations name them: hirag://INDEX/documents/ID."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

SCHEME: Final = "hirag"
DEFAULT_INDEX: Final = "default"  # in place of the index of requests that name none


def resource_uri(index: str, kind: str = "", key: str = "") -> str:
    """Return the URI of a resource.

    Args:
        index: Name of the index; empty for the default one.
        kind: documents, entities or reports; empty for the index itself.
        key: Id, or the name of an entity.

    >>> resource_uri("", "entities", "Ada Byron"), resource_uri("law/de")
    ('hirag://default/entities/Ada%20Byron', 'hirag://law%2Fde')
    """
    root = f"{SCHEME}://{quote(index or DEFAULT_INDEX, safe='')}"
    return f"{root}/{kind}/{quote(key, safe='')}" if kind else root
