"""INPUT → documents and chunks."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from hirag_dist.errors import InputError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.inputs import check_read, read_options, source_table
from hirag_dist.indexing.metadata import NO_METADATA, DocumentMetadata, read_metadata
from hirag_dist.indexing.stages.chunk import ChunkDocuments
from hirag_dist.indexing.stages.read import ReadDocuments, UniqueDocuments
from hirag_dist.readers import is_access_refusal
from hirag_dist.schemas import REJECTS


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
    """Records of INPUT that are there and could not be read, those apart that access rules refuse.

    Attributes:
        records: (URI, record).
        first_lost: URI of a file or folder → the first record of which, and of all after it, nothing was read.
    """

    records: frozenset[tuple[str, int]] = frozenset()
    first_lost: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, units: Iterable[str], files: Container[str], read: Iterable[tuple[str, int]]) -> UnreadRecords:
        """Return the unread records.

        Args:
            units: units of the dead letters of reading, as `unit_of` names them.
            files: names of the files of INPUT.
            read: (URI, record) of what was read.
        """
        lost: set[tuple[str, int]] = set()
        for unit in units:
            file, mark, number = unit.rpartition("#")
            is_numbered = unit not in files and mark and number.isdecimal()
            lost.add((file, int(number)) if is_numbered else (unit, 0))
        last: dict[str, int] = {}
        for uri, record in (*lost, *read):
            last[uri] = max(last.get(uri, 0), record)
        return cls(frozenset(lost), {uri: record for uri, record in lost if last[uri] == record})

    def __contains__(self, place: tuple[str, int]) -> bool:
        """Check for a (URI, record), which may be of a file below a folder that could not be listed."""
        uri, record = place
        folders = (uri[:end] for end, char in enumerate(uri) if char == "/")
        is_lost = uri in self.first_lost and record >= self.first_lost[uri]
        return place in self.records or is_lost or any(folder in self.first_lost for folder in folders)


@dataclass(frozen=True)
class ReadInput:
    """DOCUMENTS of INPUT, each text once, their PLACES, dead letters of reading, and metadata."""

    documents: Dataset
    places: Dataset
    rejects: Dataset
    metadata: DocumentMetadata = NO_METADATA
    unread: UnreadRecords = UnreadRecords()


def read_documents(context: BuildContext, inputs: Sequence[str]) -> ChunkedDocuments:
    """Return the distinct documents of INPUT and their chunks.

    Raises:
        InputError: there is nothing to read, or no record has the text field that was named.
    """
    return chunked(context, read_input(context, inputs))


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
    """Return DOCUMENTS with each text once for each set of labels, sorted by id, without dead letters.

    Args:
        places: READ_PLACES.
    """
    found = context.runner.run(UniqueDocuments(), "unique documents", documents=documents, places=places)
    return ReadInput(found.documents, found.places, Dataset(REJECTS))


def read_input(context: BuildContext, inputs: Sequence[str]) -> ReadInput:
    """Return the distinct documents of INPUT.

    Raises:
        InputError: there is nothing to read, or no record has the text field that was named.
    """
    config, runner, datasets = context.config, context.runner, context.datasets
    reading = config.reading
    sources = source_table(inputs, follow_links=reading.follow_links)
    read = runner.run_tolerant(
        ReadDocuments(read_options(reading, config.metadata)), "documents", sources=datasets.put("sources", sources)
    )
    unread = UnreadRecords()
    if read.rejects.rows:
        found = datasets.read(read.documents, ["uri", "record"])
        uris, records = found["uri"].to_pylist(), found["record"].to_pylist()
        letters = datasets.read(read.rejects, ["stage", "unit_id", "reason"])
        letters = letters.filter(pc.equal(letters["stage"], ReadDocuments.name))
        if letters.num_rows:
            check_read(sources, set(uris), letters, reading.text_field)
        files = set(sources["shown"].to_pylist())
        pairs = zip(letters["unit_id"].to_pylist(), letters["reason"].to_pylist(), strict=True)
        units = [unit for unit, reason in pairs if not is_access_refusal(reason)]
        unread = UnreadRecords.of(units, files, zip(uris, records, strict=True))
    metadata = read_metadata(context, read.metadata)
    documents = unique_documents(context, read.documents, read.places)
    return replace(documents, rejects=read.rejects, metadata=metadata, unread=unread)
