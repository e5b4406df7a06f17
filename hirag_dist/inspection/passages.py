"""Chunks of the drawn entities and the documents that hold them, as far as a page can hold their texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.text.normalize import one_line, shorten

MAX_BYTES = 2_000_000  # of the texts of documents, in UTF-8
MAX_CHUNKS = 6  # of an entity

_TITLE_CHARS = 120


@dataclass(frozen=True, slots=True)
class PageTexts:
    """Documents, their chunks, and the chunks of each entity.

    Attributes:
        documents: columns by name: title, uri, text. Those whose chunks most entities have, as long as they fit.
        chunks: columns by name: document (a place in `documents`), start and end, in UTF-16 units of the text, as
            scripts count.
        of_entity: for each drawn entity the places of its chunks in `chunks`, at most `MAX_CHUNKS`.
        total: documents of the index.
    """

    documents: Mapping[str, Sequence[Any]] = field(default_factory=lambda: {"title": [], "uri": [], "text": []})
    chunks: Mapping[str, Sequence[Any]] = field(default_factory=lambda: {"document": [], "start": [], "end": []})
    of_entity: Sequence[Sequence[int]] = ()
    total: int = 0


def choose_passages(tables: Mapping[str, pa.Table], entity_ids: Sequence[str], max_bytes: int = MAX_BYTES) -> PageTexts:
    """Choose the documents whose texts a page holds; the same tables give the same choice.

    Args:
        tables: entities, chunks and documents.
        entity_ids: ids of the drawn entities, in their order.
        max_bytes: limit of the texts. The largest documents are left out first where not all fit: a document is taken
            if it fits, in the order of how many of the entities' chunks it holds.
    """
    entities, chunks, documents = tables["entities"], tables["chunks"], tables["documents"]
    drawn = entities["chunk_ids"].take(
        pa.array(rows_of(pa.chunked_array([pa.array(entity_ids, pa.string())]), entities["entity_id"]))
    )
    wanted = [ids[:MAX_CHUNKS] for ids in drawn.to_pylist()]
    flat = pa.chunked_array([pa.array(chain.from_iterable(wanted), pa.string())])
    rows = rows_of(flat, chunks["chunk_id"]).tolist()
    owners = rows_of(chunks["document_id"], documents["document_id"]).tolist()
    use = Counter(owners[row] for row in rows if row >= 0 and owners[row] >= 0)
    texts: dict[int, str] = {}
    left = max_bytes
    for document, _ in sorted(use.items(), key=lambda pair: (-pair[1], pair[0])):
        text = documents["text"][document].as_py()
        size = len(text.encode())
        if size <= left:
            texts[document] = text
            left -= size
    place = {document: at for at, document in enumerate(sorted(texts))}
    held = sorted({row for row in rows if row >= 0 and owners[row] in place})
    at_chunk = {row: at for at, row in enumerate(held)}
    spans = chunks.select(["start", "end"]).take(pa.array(held, pa.int64())).to_pylist()
    marks = [_units(texts[owners[row]], span["start"], span["end"]) for row, span in zip(held, spans, strict=True)]
    in_order = iter(rows)
    names = documents.select(["title", "uri"]).take(pa.array(sorted(texts), pa.int64())).to_pylist()
    return PageTexts(
        documents={
            "title": [shorten(one_line(name["title"]), _TITLE_CHARS) for name in names],
            "uri": [name["uri"] for name in names],
            "text": [texts[document] for document in sorted(texts)],
        },
        chunks={
            "document": [place[owners[row]] for row in held],
            "start": [start for start, _ in marks],
            "end": [end for _, end in marks],
        },
        of_entity=[[at_chunk[row] for row in (next(in_order) for _ in ids) if row in at_chunk] for ids in wanted],
        total=documents.num_rows,
    )


def _units(text: str, start: int, end: int) -> tuple[int, int]:
    """Return places of a text in UTF-16 units.

    >>> _units("a🐚b", 2, 3)
    (3, 4)
    """
    before = len(text[:start].encode("utf-16-le", "surrogatepass")) // 2
    return before, before + len(text[start:end].encode("utf-16-le", "surrogatepass")) // 2
