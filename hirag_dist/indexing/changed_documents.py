"""Changes of an index's documents: the documents of now against those of the base."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.retrieval.places import is_named
from hirag_dist.core.text.ids import text_keys
from hirag_dist.core.text.normalize import first_names
from hirag_dist.errors import InputError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.documents import ChunkedDocuments, ReadInput, chunk_documents, chunked
from hirag_dist.indexing.read_files import HELD, NO_FILES, places_of
from hirag_dist.schemas import CHUNKS, DOCUMENTS
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


def selected_documents(documents: pa.Table, selection: DocumentSelection, places: pa.Table = NO_FILES.held) -> pa.Table:
    """Return the documents that a selection names.

    Args:
        documents: DOCUMENTS, or its columns `document_id`, `uri`, `record` and `source_ids`.
        places: HELD, by which a document is found under the places of its copies too.

    Raises:
        InputError: an id or pattern matches none of them.
    """
    wanted = set(selection.ids)
    chosen = []
    unmatched = wanted | set(selection.sources)
    named: dict[str, set[tuple[str, int]]] = {}
    columns = (places[name].to_pylist() for name in ("document_id", "name", "record"))
    for own, uri, record in zip(*columns, strict=True):
        named.setdefault(own, set()).add((uri, record))
    columns = (documents[name].to_pylist() for name in ("document_id", "uri", "record", "source_ids"))
    for own, uri, record, sources in zip(*columns, strict=True):
        names = {own, *sources} & wanted
        at = {(uri, record), *named.get(own, ())}
        patterns = {
            pattern for pattern in selection.sources if any(is_named(path, number, pattern) for path, number in at)
        }
        unmatched -= names | patterns
        chosen.append(bool(names or patterns))
    if unmatched:
        raise InputError(
            f"no document of the index is named {first_names(unmatched)}; `hirag-dist status --documents` lists them"
        )
    return documents.filter(pa.array(chosen, pa.bool_()))


def kept_beside(
    places: pa.Table, read: Container[tuple[str, int]], is_gone: Sequence[bool]
) -> tuple[pa.Table, pa.Table]:
    """Return what is kept when documents are added, as `kept_places` does: the places that were not read again.

    A document with several source ids at one place has others that are not known, because the table of files was lost:
    it stays as it is.

    Args:
        places: HELD, copies too.
        read: (URI, record) of what was read.
        is_gone: (n_places,) whether nothing stays there all the same: access rules refuse it, or its text has moved.
    """
    columns = (places_of(places), has_others(places), is_gone)
    is_kept = [not gone and (others or place not in read) for place, others, gone in zip(*columns, strict=True)]
    return kept_places(places, is_kept)


def has_others(places: pa.Table) -> list[bool]:
    """Return for each row of HELD whether its document has several source ids there."""
    found: list[bool] = pc.greater(pc.list_value_length(places["source_ids"]), 1).to_pylist()
    return found


def kept_places(places: pa.Table, is_kept: Sequence[bool]) -> tuple[pa.Table, pa.Table]:
    """Return the places of documents that are kept, and the new names of documents of which not all places are.

    A document stays while one of its places does: it is named after the first of those, and has their source ids.

    Args:
        places: HELD, copies too.
        is_kept: (n_places,) whether a document is kept there.

    Returns:
        HELD of the kept places, and HELD with a row for each document that has lost some places and not all.
    """
    mask = pa.array(is_kept, pa.bool_())
    kept, lost = places.filter(mask), places.filter(pc.invert(mask))
    in_part = kept.filter(pc.is_in(kept["document_id"], value_set=lost["document_id"].combine_chunks()))
    named: dict[str, dict[str, Any]] = {}
    for row in in_part.sort_by([("name", "ascending"), ("record", "ascending")]).to_pylist():
        first = named.setdefault(row["document_id"], row)
        first["source_ids"] = sorted({*first["source_ids"], *row["source_ids"]})
    return kept, pa.Table.from_pylist(list(named.values()), HELD)


def moved_documents(
    context: BuildContext, base: UpdateBase, places: pa.Table, is_in_doubt: Sequence[bool], found: ReadInput
) -> list[bool]:
    """Return for each place in doubt whether the text of its document was read at another place, or with other labels.

    Such a text has moved: it has the labels of its new place, which may be others than those that it had.

    Args:
        places: HELD of all documents of the base.
        is_in_doubt: (n_places,) whether it is not known what the place holds now; the result is False elsewhere.
        found: what was read.
    """
    mask = pa.array(is_in_doubt, pa.bool_())
    if not any(is_in_doubt):
        return list(is_in_doubt)
    pairs = (zip(held["document_id"].to_pylist(), places_of(held), strict=True) for held in (found.files.held, places))
    read_at, known = map(set, pairs)
    new = pa.array(sorted({own for own, _ in read_at - known}), pa.string())
    documents = base.table("documents").cast(DOCUMENTS)
    in_doubt = places.filter(mask)["document_id"].combine_chunks()
    lost = base.rows(documents, np.flatnonzero(pc.is_in(documents["document_id"], value_set=in_doubt)))
    is_moved = np.zeros(len(lost), bool)
    for part in found.documents.parts:  # one in memory
        read = context.datasets.read(Dataset(DOCUMENTS, (part,)), ["document_id", "text"])
        texts = read.filter(pc.is_in(read["document_id"], value_set=new))["text"].combine_chunks()
        is_moved |= pc.is_in(lost["text"], value_set=texts).to_numpy()
    moved = lost.filter(pa.array(is_moved))["document_id"].combine_chunks()
    gone: list[bool] = pc.and_(mask, pc.is_in(places["document_id"], value_set=moved)).to_pylist()
    return gone


def renamed_documents(documents: pa.Table, names: pa.Table) -> pa.Table:
    """Return documents, of which those of HELD have another place or other source ids now."""
    rows = rows_of(documents["document_id"], names["document_id"])
    order = pa.array(np.where(rows < 0, np.arange(len(rows)), len(rows) + rows))
    for name, given in (("uri", "name"), ("record", "record"), ("source_ids", "source_ids")):
        column = pa.chunked_array([*documents[name].chunks, *names[given].chunks]).take(order)
        documents = documents.set_column(documents.schema.get_field_index(name), DOCUMENTS.field(name), column)
    return documents


def changed_documents(context: BuildContext, base: UpdateBase, found: ReadInput) -> ChangedDocuments:
    """Return how the documents of now differ from the base's, with their chunks.

    Args:
        found: the documents of now, each once, sorted by id.

    Raises:
        InputError: no text would be left.
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
    if not (chunks + new_chunks).rows:
        raise InputError("no document with text would be left: an index needs one; to remove all, delete the index")
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
