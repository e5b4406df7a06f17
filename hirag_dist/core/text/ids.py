"""Identifiers, hashes of content, so that equal inputs give equal ids wherever they are computed; keys of names.

PyArrow is imported by what takes arrays: the process of the browser page has prompts, and so ids, without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.text.normalize import name_key

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = r"\A[A-Za-z0-9](?:[A-Za-z0-9 '&.,:;/+-]*[A-Za-z0-9])?\z"  # nothing that `name_key` changes but capitals


def name_keys(names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return `name_key` of each name. Plain ASCII names, most names of most texts, are lower-cased together.

    >>> import pyarrow as pa
    >>> name_keys(pa.array(["The GHOST", " “Scrooge” "])).to_pylist()
    ['the ghost', 'scrooge']
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(names, pa.ChunkedArray):
        names = pa.concat_arrays([pa.array([], pa.string()), *names.chunks])
    keys = pc.ascii_lower(names)
    is_plain = pc.and_not(pc.match_substring_regex(names, _PLAIN), pc.match_substring(names, "  "))
    others = pa.array(np.flatnonzero(~is_plain.to_numpy(zero_copy_only=False)))
    if not len(others):
        return keys
    found = pa.array([name_key(name) for name in names.take(others).to_pylist()], pa.string())
    return pc.replace_with_mask(keys, pc.invert(is_plain), found)


ID_CHARS = 24  # 96 bits: a collision among 10⁹ ids has a chance of 10⁻¹¹


def content_id(*parts: str) -> str:
    """Return 24 hex digits that depend on every part and on where the parts end.

    >>> content_id("ab", "c") == content_id("a", "bc")
    False
    """
    framed = bytearray()  # hashed at once: a million ids have a few words each
    for part in parts:
        framed += _framed(part)
    return hashlib.sha256(framed).hexdigest()[:ID_CHARS]


def content_ids(prefix: Sequence[str], lists: pa.ListArray) -> list[str]:
    """Return `content_id(*prefix, *texts)` of each list of texts, without a Python string for each.

    >>> import pyarrow as pa
    >>> content_ids(["a"], pa.array([["b", "cc"], []])) == [content_id("a", "b", "cc"), content_id("a")]
    True
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    start = hashlib.sha256()
    for part in prefix:
        start.update(_framed(part))
    texts = lists.flatten().cast(pa.large_binary())
    lengths = pc.binary_length(texts).dictionary_encode()
    frames = pa.array([n.to_bytes(8, "little") for n in lengths.dictionary.to_pylist()], pa.large_binary())
    framed = pc.binary_join_element_wise(frames.take(lengths.indices), texts, pa.scalar(b"", pa.large_binary()))
    sizes = pc.binary_length(framed).to_numpy(zero_copy_only=False)
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    counts = lists.value_lengths().to_numpy(zero_copy_only=False)
    ends = bounds[np.concatenate([[0], np.cumsum(counts)])].tolist()
    data = memoryview(framed.buffers()[2] or b"")
    found = []
    for first, last in pairwise(ends):
        digest = start.copy()
        digest.update(data[first:last])
        found.append(digest.hexdigest()[:ID_CHARS])
    return found


def _framed(part: str) -> bytes:
    data = part.encode("utf-8", "surrogatepass")
    return len(data).to_bytes(8, "little") + data


def document_id(text: str, labels: Collection[str] = ()) -> str:
    """Return a document's id: of its text and labels, so that a copy is the same document.

    Copies with other labels have other ids: a caller who may see one of them learns nothing about the name and place of
    the other.

    >>> document_id("text", ["b", "a"]) == document_id("text", ("a", "b", "a"))
    True
    """
    return content_id("document", text, *sorted(set(labels)))


def chunk_id(document: str, start: int, end: int, text: str) -> str:
    """Return a chunk's id: half of it a hash of the text, half of its document and character span.

    Sorted by id, the chunks of an edited document that did not change keep their places.
    """
    half = ID_CHARS // 2
    return content_id("chunk text", text)[:half] + content_id("chunk", document, str(start), str(end))[:half]


def text_key(chunk: str) -> int:
    """Return the number that stands for a chunk's text, from the chunk's id: 48 bits.

    >>> text_key(chunk_id("a", 0, 4, "text")) == text_key(chunk_id("b", 7, 11, "text"))
    True
    """
    return int(chunk[: ID_CHARS // 2], 16)


def text_keys(chunks: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return `text_key` of each chunk id. (n,) int64.

    >>> import pyarrow as pa
    >>> text_keys(pa.array(["0a" * 12])).tolist() == [text_key("0a" * 12)]
    True
    """
    return np.array([int(chunk[: ID_CHARS // 2], 16) for chunk in chunks.to_pylist()], np.int64)


def entity_id(layer: int, key: str) -> str:
    """Return an entity's id: of its layer and normalised name."""
    return content_id("entity", str(layer), key)


def relation_id(kind: str, source_id: str, target_id: str) -> str:
    """Return a relation's id. Extracted relations have no direction; pass their endpoints sorted."""
    return content_id("relation", kind, source_id, target_id)


def unit_id(text: str) -> str:
    r"""Return the hash that recordings of a text's replies are found by: white space does not count.

    >>> unit_id("a  b\n") == unit_id("a b")
    True
    """
    return content_id("unit", " ".join(text.split()))
