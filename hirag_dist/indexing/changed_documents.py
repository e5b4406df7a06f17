"""Changes of an index's documents: the documents of now against those of the base."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.retrieval.places import is_named
from hirag_dist.core.text.ids import text_keys
from hirag_dist.core.text.normalize import first_names
from hirag_dist.errors import InputError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments, ReadInput, chunk_documents, chunked
from hirag_dist.schemas import CHUNKS
from hirag_dist.storage.layout import EXTRACTION_COSTS
from hirag_dist.types import IntVector


@dataclass(frozen=True)
class DocumentSelection:
    """Documents of an index to remove; those that meet any condition are selected.

    Attributes:
        ids: document ids, or the owner's ids of records.
        sources: glob patterns of the documents' URIs, such as `reports/2019/*`, or `rows.csv, record 2` for one record.
    """

    ids: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


@dataclass(frozen=True)
class DocumentCounts:
    """Numbers of documents that an update adds, changes and removes.

    A document is changed where its place, (URI, record), has another text or other labels than before.
    """

    added: int = 0
    changed: int = 0
    removed: int = 0

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed)


@dataclass(frozen=True)
class ChangedDocuments:
    """Documents of now, and what differs from the base.

    Attributes:
        documents: all documents and chunks of now, and dead letters of reading.
        new_chunks: chunks that the base does not have.
        removed_chunks: ids of the base's chunks that are gone.
        removed_keys: `text_key` of texts of removed documents that no chunk has any more. (n,) int64, ascending.
        replaced_keys: the same of changed documents, by their place, `uri#record`.
        removed_extraction: tokens that the extraction of removed documents has cost.
        removed_tokens: of the text of removed documents.
    """

    documents: ChunkedDocuments
    counts: DocumentCounts
    new_chunks: Dataset
    removed_chunks: pa.Array
    removed_keys: IntVector
    replaced_keys: Mapping[str, tuple[int, ...]]
    removed_extraction: int
    removed_tokens: int


def selected_documents(documents: pa.Table, selection: DocumentSelection) -> pa.Table:
    """Return the documents that a selection names.

    Args:
        documents: DOCUMENTS, or its columns `document_id`, `uri`, `record` and `source_ids`.

    Raises:
        InputError: an id or pattern matches none of them.
    """
    wanted = set(selection.ids)
    chosen = []
    unmatched = wanted | set(selection.sources)
    columns = (documents[name].to_pylist() for name in ("document_id", "uri", "record", "source_ids"))
    for own, uri, record, sources in zip(*columns, strict=True):
        names = {own, *sources} & wanted
        patterns = {pattern for pattern in selection.sources if is_named(uri, record, pattern)}
        unmatched -= names | patterns
        chosen.append(bool(names or patterns))
    if unmatched:
        named = first_names(unmatched)
        raise InputError(f"no document of the index is named {named}; `hirag-dist status --documents` lists them")
    return documents.filter(pa.array(chosen, pa.bool_()))


def kept_beside(base: pa.Table, new: pa.Table) -> IntVector:
    """Return the rows of documents that stay when new ones are added, which replace those of the same place.

    Args:
        base, new: DOCUMENTS, or their columns `document_id`, `uri` and `record`.
    """
    places = {(uri, record) for uri, record in zip(new["uri"].to_pylist(), new["record"].to_pylist(), strict=True)}
    ids = set(new["document_id"].to_pylist())
    kept = [
        own in ids or (uri, record) not in places
        for own, uri, record in zip(*(base[name].to_pylist() for name in ("document_id", "uri", "record")), strict=True)
    ]
    return np.flatnonzero(kept)


def changed_documents(context: BuildContext, base: UpdateBase, found: ReadInput) -> ChangedDocuments:
    """Return how the documents of now differ from the base's, with their chunks.

    Args:
        found: the documents of now, each once, sorted by id.

    Raises:
        InputError: the index is new, and they hold no text.
    """
    if base.is_nothing:
        return new_documents(chunked(context, found))
    datasets, documents = context.datasets, found.documents
    now = datasets.read(documents, ["document_id", "uri", "record"])
    before = base.table("documents", ["document_id", "uri", "record"])
    is_new = pc.invert(pc.is_in(now["document_id"], value_set=before["document_id"].combine_chunks()))
    is_gone = pc.invert(pc.is_in(before["document_id"], value_set=now["document_id"].combine_chunks()))
    new, gone = now.filter(is_new), before.filter(is_gone)
    replaced = set(_places(new)) & set(_places(gone))
    n_changed = len(replaced)
    counts = DocumentCounts(new.num_rows - n_changed, n_changed, gone.num_rows - n_changed)
    old_chunks = base.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    removed = pc.is_in(old_chunks["document_id"], value_set=gone["document_id"].combine_chunks())
    removed_chunks = old_chunks.filter(removed)
    new_chunks = Dataset(CHUNKS)
    if new.num_rows:
        ids = new["document_id"].combine_chunks()
        parts = (datasets.read(Dataset(documents.schema, (part,))) for part in documents.parts)  # one in memory
        texts = pa.concat_tables([part.filter(pc.is_in(part["document_id"], value_set=ids)) for part in parts])
        texts = texts.sort_by("document_id")  # whichever documents were read beside them
        new_chunks = chunk_documents(context, datasets.put("new_documents", texts), "new chunks")
    chunks = base.dataset("chunks", CHUNKS)
    if removed_chunks.num_rows:
        rows = np.flatnonzero(~removed.to_numpy(zero_copy_only=False))
        kept = base.rows(base.table("chunks").cast(CHUNKS), rows)
        chunks = datasets.put("kept_chunks", kept)
    kept_ids = old_chunks.filter(pc.invert(removed))["chunk_id"]
    present = np.concatenate([text_keys(kept_ids), text_keys(datasets.read(new_chunks, ["chunk_id"])["chunk_id"])])
    place_of = dict(zip(gone["document_id"].to_pylist(), _places(gone), strict=True))
    home = [place_of[own] for own in removed_chunks["document_id"].to_pylist()]
    keys = text_keys(removed_chunks["chunk_id"])
    is_lost = ~np.isin(keys, present)
    is_replaced = np.array([place in replaced for place in home], bool)
    former: dict[str, set[int]] = {}
    for at in np.flatnonzero(is_lost & is_replaced).tolist():
        former.setdefault(home[at], set()).add(int(keys[at]))
    earlier = base.note.replaced
    removed_keys = {int(key) for key in keys[is_lost & ~is_replaced]}
    for place in set(_places(gone)) - replaced:
        removed_keys |= set(earlier.get(place, ()))
    return ChangedDocuments(
        ChunkedDocuments(documents, chunks + new_chunks, found.places, found.rejects, found.metadata),
        counts,
        new_chunks,
        removed_chunks["chunk_id"].combine_chunks(),
        np.array(sorted(removed_keys), np.int64),
        {place: tuple(sorted(former[place])) for place in sorted(former)},
        extraction_tokens(base, removed_chunks.filter(pa.array(~is_replaced))),
        int(removed_chunks["n_tokens"].to_numpy()[~is_replaced].sum()),
    )


def new_documents(documents: ChunkedDocuments) -> ChangedDocuments:
    """Return documents that are all new."""
    nothing = np.zeros(0, np.int64)
    counts = DocumentCounts(added=documents.documents.rows)
    return ChangedDocuments(documents, counts, documents.chunks, pa.array([], pa.string()), nothing, {}, 0, 0)


def extraction_tokens(base: UpdateBase, chunks: pa.Table) -> int:
    """Return the tokens that the extraction of some chunks of the base has cost.

    A chunk without a record of it, of a snapshot that an earlier version built, counts as many as the average of its
    first build.

    Args:
        chunks: `chunk_id` and `n_tokens`.
    """
    costs = base.table(EXTRACTION_COSTS)
    costs = costs.filter(pc.is_in(costs["chunk_id"], value_set=chunks["chunk_id"].combine_chunks()))
    recorded = pc.is_in(chunks["chunk_id"], value_set=costs["chunk_id"].combine_chunks()).to_numpy()
    others = chunks["n_tokens"].to_numpy()[~recorded].sum() * base.note.extraction_per_token
    return int(costs["tokens"].to_numpy().sum()) + int(others)


def _places(documents: pa.Table) -> list[str]:
    pairs = zip(documents["uri"].to_pylist(), documents["record"].to_pylist(), strict=True)
    return [f"{uri}#{record}" for uri, record in pairs]
