"""Identities: hashes of content, so that the same inputs give the same ids wherever they are computed."""

from __future__ import annotations

import hashlib

_HEX = 24  # 96 bits: a collision among 10⁹ ids has a chance of 10⁻¹¹


def content_id(*parts: str) -> str:
    """Return 24 hex digits that depend on every part and on where the parts end.

    >>> content_id("ab", "c") == content_id("a", "bc")
    False
    """
    framed = bytearray()  # hashed at once: a million ids are made of a few words each
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        framed += len(data).to_bytes(8, "little")
        framed += data
    return hashlib.sha256(framed).hexdigest()[:_HEX]


def document_id(text: str) -> str:
    """Return a document's id: of its text alone, so that a copy is the same document."""
    return content_id("document", text)


def chunk_id(document: str, start: int, end: int) -> str:
    """Return a chunk's id: of its document and character span."""
    return content_id("chunk", document, str(start), str(end))


def entity_id(layer: int, key: str) -> str:
    """Return an entity's id: of its layer and normalised name."""
    return content_id("entity", str(layer), key)


def relation_id(kind: str, source_id: str, target_id: str) -> str:
    """Return a relation's id. Extracted relations have no direction; pass their endpoints sorted."""
    return content_id("relation", kind, source_id, target_id)


def unit_id(text: str) -> str:
    """Return the hash that recordings of a text's replies are found by: white space does not count.

    >>> unit_id("a  b\\n") == unit_id("a b")
    True
    """
    return content_id("unit", " ".join(text.split()))
