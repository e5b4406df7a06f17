"""INPUT → documents and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hirag_dist.errors import InputError
from hirag_dist.execution.dataset import Dataset
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.inputs import check_read, read_options, source_table
from hirag_dist.indexing.metadata import NO_METADATA, DocumentMetadata, read_metadata
from hirag_dist.indexing.stages.chunk import ChunkDocuments
from hirag_dist.indexing.stages.read import ReadDocuments, UniqueDocuments
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
class ReadInput:
    """DOCUMENTS of INPUT, each text once, their PLACES, dead letters of reading, and metadata."""

    documents: Dataset
    places: Dataset
    rejects: Dataset
    metadata: DocumentMetadata = NO_METADATA


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
    if read.rejects.rows:
        uris = datasets.read(read.documents, ["uri"])["uri"].to_pylist()
        check_read(sources, set(uris), datasets.read(read.rejects, ["unit_id", "reason"]), reading.text_field)
    metadata = read_metadata(context, read.metadata)
    return replace(unique_documents(context, read.documents, read.places), rejects=read.rejects, metadata=metadata)
