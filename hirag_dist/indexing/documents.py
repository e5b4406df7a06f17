"""INPUT → documents and chunks, with positions in the originals."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist import schemas
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.errors import InputError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.inputs import check_read, read_options, source_table
from hirag_dist.indexing.metadata import (
    NO_METADATA,
    DocumentMetadata,
    base_metadata,
    metadata_beside,
    read_metadata,
)
from hirag_dist.indexing.read_files import (
    HELD,
    NO_FILES,
    FilesRead,
    UnchangedFiles,
    files_of,
    reading_key,
    unchanged_files,
)
from hirag_dist.indexing.stages.read import READ_METADATA, READ_PLACES, ChunkDocuments, ReadDocuments, UniqueDocuments
from hirag_dist.readers import is_access_refusal, is_whole_record
from hirag_dist.schemas import DOCUMENTS, REJECTS
from hirag_dist.storage.layout import PLACES
from hirag_dist.types import IntVector

logger = logging.getLogger(__name__)
NOTHING_READ = ReadDocuments.Outputs(
    documents=Dataset(DOCUMENTS),
    places=Dataset(READ_PLACES),
    metadata=Dataset(READ_METADATA),
    rejects=Dataset(REJECTS),
)


@dataclass(frozen=True)
class ChunkedDocuments:
    """DOCUMENTS, their CHUNKS and PLACES, dead letters (inputs that could not be read or imported), and metadata."""

    documents: Dataset
    chunks: Dataset
    places: Dataset
    rejects: Dataset
    metadata: DocumentMetadata = NO_METADATA


@dataclass(frozen=True)
class UnreadRecords:
    """Records of INPUT that are there and gave no document.

    Attributes:
        records: (URI, record).
        first_lost: URI of a file or folder → the first record of which, and of all after it, nothing was read, because
            the file breaks off there, or is refused as a whole.
    """

    records: frozenset[tuple[str, int]] = frozenset()
    first_lost: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, letters: Iterable[tuple[str, str]], files: Container[str], read: Iterable[tuple[str, int]]
    ) -> tuple[UnreadRecords, UnreadRecords]:
        """Return the records that could not be read, and those that access rules refuse.

        Args:
            letters: (unit, reason) of the dead letters of reading, units as `unit_of_letter` names them.
            files: names of the files of INPUT.
            read: (URI, record) of what was read.
        """
        lost: dict[tuple[str, int], bool] = {}  # → whether the file may break off there
        refused: dict[tuple[str, int], bool] = {}
        last: dict[str, int] = {}
        for unit, reason in letters:
            uri, record = place = _file_of(unit, files)
            is_file, may_break_off = uri == unit, not is_whole_record(reason)
            if not is_access_refusal(reason):
                lost[place] = is_file or may_break_off
                continue
            refused[place] = is_file
            if may_break_off and not is_file:
                lost[uri, record + 1] = True
        for uri, record in (*lost, *refused, *read):
            last[uri] = max(last.get(uri, 0), record)

        def records(found: Mapping[tuple[str, int], bool]) -> UnreadRecords:
            ends = {uri: record for (uri, record), is_end in found.items() if is_end and last[uri] == record}
            return cls(frozenset(found), ends)

        return records(lost), records(refused)

    def __contains__(self, place: tuple[str, int]) -> bool:
        """Check for a (URI, record), which may be of a file below a folder that could not be listed."""
        uri, record = place
        folders = (uri[:end] for end, char in enumerate(uri) if char == "/")
        is_lost = uri in self.first_lost and record >= self.first_lost[uri]
        return place in self.records or is_lost or any(folder in self.first_lost for folder in folders)


NO_RECORDS = UnreadRecords()


@dataclass(frozen=True)
class ReadInput:
    """DOCUMENTS of INPUT, each text once, their PLACES, dead letters of reading, and metadata.

    Attributes:
        unread: records that are there and could not be read.
        refused: records that access rules refuse.
        files: files of INPUT.
        n_unchanged: number of them that were not opened.
    """

    documents: Dataset
    places: Dataset
    rejects: Dataset
    metadata: DocumentMetadata = NO_METADATA
    unread: UnreadRecords = NO_RECORDS
    refused: UnreadRecords = NO_RECORDS
    files: FilesRead = NO_FILES
    n_unchanged: int = 0


def chunked(context: BuildContext, found: ReadInput) -> ChunkedDocuments:
    """Return documents with their chunks.

    Raises:
        InputError: they hold no text.
    """
    chunks = chunk_documents(context, found.documents, "chunks")
    if chunks.rows == 0:
        raise InputError("INPUT holds no text that can be indexed")
    return ChunkedDocuments(found.documents, chunks, found.places, found.rejects, found.metadata)


def chunk_documents(context: BuildContext, documents: Dataset, label: str) -> Dataset:
    """Return CHUNKS of documents."""
    config = context.config
    chunking = ChunkDocuments(config.tokenizer, config.chunk_tokens, config.chunk_overlap_tokens, config.chunking)
    return context.runner.run(chunking, label, documents=documents).chunks


def unique_documents(context: BuildContext, documents: Dataset, places: Dataset) -> ReadInput:
    """Return DOCUMENTS with each text once for each set of labels, sorted by id, without dead letters, and PLACES."""
    found = context.runner.run(UniqueDocuments(), "unique documents", documents=documents, places=places)
    return ReadInput(found.documents, found.places, Dataset(REJECTS))


def read_input(context: BuildContext, inputs: Sequence[str], base: UpdateBase | None = None) -> ReadInput:
    """Return the distinct documents of INPUT.

    Args:
        base: a snapshot that has the documents of files that have not changed since; they are not opened. None: all
            files are read.

    Raises:
        InputError: there is nothing to read, or no record has the text field that was named.
    """
    config, runner, datasets = context.config, context.runner, context.datasets
    options = read_options(config.reading, config.metadata)
    key = reading_key(options)
    sources = source_table(inputs, follow_links=config.reading.follow_links)
    unchanged = None if base is None or base.is_nothing else unchanged_files(base, sources, key)
    unread_names: list[str] = []
    to_read = sources
    if unchanged is not None:
        to_read = sources.filter(pa.array(~unchanged.is_unread))
        unread_names = unchanged.files.rows["name"].to_pylist()
        logger.info("%s unchanged, not read; %s to read", count_noun(len(unread_names), "file"), to_read.num_rows)
    read = NOTHING_READ
    if to_read.num_rows:
        read = runner.run_tolerant(ReadDocuments(options), "documents", sources=datasets.put("sources", to_read))
    found = datasets.read(read.documents, ["document_id", "uri", "record", "source_ids"])
    names, is_whole = to_read["shown"], np.ones(to_read.num_rows, bool)
    unread = refused = NO_RECORDS
    if read.rejects.rows:
        letters = datasets.read(read.rejects, ["stage", "unit_id", "reason"])
        files = set(names.to_pylist())
        lost = {_file_of(unit, files)[0] for unit in letters["unit_id"].to_pylist()}
        is_whole = pc.invert(pc.is_in(names, value_set=pa.array(sorted(lost), pa.string()))).to_numpy()
        letters = letters.filter(pc.equal(letters["stage"], ReadDocuments.name))
        uris, records = found["uri"].to_pylist(), found["record"].to_pylist()
        if letters.num_rows:
            check_read(sources, {*uris, *unread_names}, letters, config.reading.text_field)
        pairs = zip(letters["unit_id"].to_pylist(), letters["reason"].to_pylist(), strict=True)
        unread, refused = UnreadRecords.of(pairs, files, zip(uris, records, strict=True))
    held = found.select(["uri", "document_id", "record", "source_ids"]).rename_columns(HELD.names)
    result = replace(
        _with_unchanged(context, base, unchanged, read),
        rejects=read.rejects,
        unread=unread,
        refused=refused,
        files=files_of(to_read, key, is_whole, held),
    )
    if unchanged is None:
        return result
    return replace(result, files=result.files + unchanged.files, n_unchanged=len(unread_names))


def _with_unchanged(
    context: BuildContext, base: UpdateBase | None, unchanged: UnchangedFiles | None, read: ReadDocuments.Outputs
) -> ReadInput:
    """Return the documents that were read, each once, with those of the base's unchanged files.

    Of a text that is in files of both kinds the base's document counts as one more copy.
    """
    if base is None or unchanged is None or not len(unchanged.documents):
        documents = unique_documents(context, read.documents, read.places)
        return replace(documents, metadata=read_metadata(context, read.metadata))
    datasets, put = context.datasets, context.datasets.put
    new = datasets.read(read.documents, ["document_id", "uri", "record"])
    ids = base.table("documents", ["document_id"])["document_id"].take(pa.array(unchanged.documents))
    is_both = pc.is_in(ids, value_set=new["document_id"].combine_chunks()).to_numpy()
    kept_rows, both_rows = unchanged.documents[~is_both], unchanged.documents[is_both]
    copies, places, metadata = read.documents, read.places, read.metadata
    if len(both_rows):
        both = base.rows(base.table("documents").cast(DOCUMENTS), both_rows)
        copies += put("copied_documents", both)
        places += put("copied_places", places_beside(both, base.table(PLACES), new))
        metadata += put("copied_metadata", base_metadata(base, both))
    unique = ReadInput(Dataset(DOCUMENTS), Dataset(schemas.PLACES), Dataset(REJECTS))
    if copies.rows:
        unique = unique_documents(context, copies, places)
    kept, kept_places = kept_documents(context, base, kept_rows)
    kept_ids = ids.filter(pa.array(~is_both))
    return ReadInput(
        unique.documents + kept,
        unique.places + kept_places,
        Dataset(REJECTS),
        metadata_beside(read_metadata(context, metadata), base, kept_ids),
    )


def kept_documents(context: BuildContext, base: UpdateBase, rows: IntVector) -> tuple[Dataset, Dataset]:
    """Return DOCUMENTS of rows of the base and their PLACES; all of them where they lie, without reading a text."""
    if len(rows) == len(base.table("documents", ["document_id"])):
        return base.dataset("documents", DOCUMENTS), base.dataset(PLACES, schemas.PLACES)
    documents = base.rows(base.table("documents").cast(DOCUMENTS), rows)
    places = places_within(base.table(PLACES).cast(schemas.PLACES), documents)
    return context.datasets.put("kept_documents", documents), context.datasets.put("kept_places", places)


def _file_of(unit: str, files: Container[str]) -> tuple[str, int]:
    """Return the file and the record of a dead letter of reading, which `unit_of` has named."""
    file, mark, number = unit.rpartition("#")
    is_numbered = unit not in files and mark and number.isdecimal()
    return (file, int(number)) if is_numbered else (unit, 0)


def places_within(places: pa.Table, documents: pa.Table) -> pa.Table:
    """Return the places of some documents."""
    return places.filter(pc.is_in(places["document_id"], value_set=documents["document_id"].combine_chunks()))


def added_places(before: pa.Table, places: pa.Table, new: pa.Table, new_places: pa.Table) -> pa.Table:
    """Return READ_PLACES of documents and of new ones; of a document that is among both, the new ones."""
    return pa.concat_tables([places_beside(before, places, new), _named(new_places, new)])


def places_beside(before: pa.Table, places: pa.Table, new: pa.Table) -> pa.Table:
    """Return READ_PLACES of documents, without those that are among new ones too.

    Args:
        before: DOCUMENTS.
        places: their PLACES.
        new: DOCUMENTS, or the columns `document_id`, `uri` and `record`.
    """
    names = ["document_id", "uri", "record"]
    again = set(zip(*(new[name].to_pylist() for name in names), strict=True))
    kept = [row not in again for row in zip(*(before[name].to_pylist() for name in names), strict=True)]
    return _named(places, before.filter(pa.array(kept, pa.bool_())))


def _named(places: pa.Table, documents: pa.Table) -> pa.Table:
    """Return READ_PLACES of the places of documents."""
    kept = places_within(places, documents)
    rows = pc.index_in(kept["document_id"], value_set=documents["document_id"].combine_chunks())
    for name in ("uri", "record"):
        kept = kept.append_column(name, documents[name].combine_chunks().take(rows))
    return kept.select(READ_PLACES.names).cast(READ_PLACES)
