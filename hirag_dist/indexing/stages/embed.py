"""Texts → vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.errors import StageFailed
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, reject_row
from hirag_dist.llm.embedding import TextsRefused
from hirag_dist.schemas import CHUNKS, ENTITIES, REJECTS, VECTORS
from hirag_dist.storage.spill import SpillFile
from hirag_dist.types import FloatMatrix, IntVector, Rejected

_BLOCK_ROWS = 16_384  # that are put in order at a time
ENTITIES_PER_TASK, CHUNKS_PER_TASK = 1024, 256


def vector_table(ids: pa.ChunkedArray, vectors: FloatMatrix) -> pa.Table:
    """Return VECTORS."""
    rows = [row.tobytes() for row in np.ascontiguousarray(vectors, "<f4")]
    return pa.table([ids, pa.array(rows, pa.binary())], schema=VECTORS)


def vector_matrix(table: pa.Table, dim: int) -> FloatMatrix:
    """Return (n, dim) from VECTORS, without a copy where they are in one piece."""
    parts = [_matrix(chunk, dim) for chunk in table["vector"].chunks if len(chunk)]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.zeros((0, dim), np.float32), *parts])


def vector_rows(table: pa.Table, dim: int, rows: IntVector) -> FloatMatrix:
    """Return (len(rows), dim): the vector of VECTORS at each row, zeros where that is −1.

    There is no copy where these are all rows in their order and in one piece, else there is one.
    """
    parts = [_matrix(chunk, dim) for chunk in table["vector"].chunks if len(chunk)]
    if len(parts) == 1 and np.array_equal(rows, np.arange(len(parts[0]))):
        return parts[0]
    result = np.zeros((len(rows), dim), np.float32)
    first = 0
    for part in parts:
        here = np.flatnonzero((rows >= first) & (rows < first + len(part)))
        for block in np.split(here, range(_BLOCK_ROWS, len(here), _BLOCK_ROWS)):
            result[block] = part[rows[block] - first]
        first += len(part)
    return result


def vector_blocks(
    folder: SpillFile, parts: Iterable[pa.Table], dim: int
) -> tuple[pa.ChunkedArray, NDArray[np.float32]]:
    """Return the ids of VECTORS and the (n, dim) vectors, mapped from a file, in the order of the parts."""
    ids: list[pa.Array] = []

    def matrices() -> Iterator[NDArray[np.float32]]:
        for part in parts:
            ids.extend(part["id"].chunks)
            yield vector_matrix(part, dim)

    matrix = folder.matrix(matrices(), dim)
    return pa.chunked_array(ids, pa.string()), matrix


def _matrix(vectors: pa.BinaryArray, dim: int) -> FloatMatrix:
    _, offsets, data = vectors.buffers()
    first, last = np.frombuffer(offsets, np.int32)[[vectors.offset, vectors.offset + len(vectors)]]
    return np.frombuffer(data, "<f4", (last - first) // 4, first).reshape(len(vectors), dim)


def entity_texts(entities: pa.Table) -> list[str]:
    """Return the text of each entity that its vector is made from."""
    pairs = zip(entities["name"].to_pylist(), entities["description"].to_pylist(), strict=True)
    return [f"{name}: {text}" if text else name for name, text in pairs]


@dataclass(frozen=True)
class EmbedEntities:
    """Entities → vectors of their names and descriptions. Paper: Eq. 7."""

    name: ClassVar[str] = "embed_entities"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(ENTITIES_PER_TASK)

    class Inputs(TableSet):
        entities: Annotated[Dataset, ENTITIES]

    class Outputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]
        rejects: Annotated[Dataset, REJECTS]

    embedder: str
    dim: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return a vector for each entity; zeros for one whose text is refused, which is in rejects."""
        entities = tables["entities"]
        return await _embed(self.name, entities["entity_id"], entity_texts(entities), services, self.dim)


@dataclass(frozen=True)
class EmbedChunks:
    """Chunks → vectors, for ranking sources and for plain retrieval."""

    name: ClassVar[str] = "embed_chunks"
    version: ClassVar[int] = 2
    split: ClassVar[Split] = ByRows(CHUNKS_PER_TASK)

    class Inputs(TableSet):
        chunks: Annotated[Dataset, CHUNKS]

    class Outputs(TableSet):
        vectors: Annotated[Dataset, VECTORS]
        rejects: Annotated[Dataset, REJECTS]

    embedder: str
    dim: int

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return a vector for each chunk; zeros for one whose text is refused, which is in rejects."""
        chunks = tables["chunks"]
        return await _embed(self.name, chunks["chunk_id"], chunks["text"].to_pylist(), services, self.dim)


async def _embed(stage: str, ids: pa.ChunkedArray, texts: list[str], services: Services, dim: int) -> Tables:
    reasons: Mapping[int, str] = {}
    try:
        vectors = await services.embedder.embed(texts)
    except TextsRefused as refusal:
        vectors, reasons = refusal.vectors, refusal.reasons
    if vectors.shape != (len(texts), dim):
        raise StageFailed(f"the embedder gave vectors of shape {vectors.shape}; {(len(texts), dim)} was expected")
    rejects = [
        reject_row(stage, Rejected(ids[row].as_py(), reason, 1, texts[row])) for row, reason in sorted(reasons.items())
    ]
    return {"vectors": vector_table(ids, vectors), "rejects": pa.Table.from_pylist(rejects, REJECTS)}
