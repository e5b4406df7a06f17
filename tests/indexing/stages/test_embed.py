"""Vectors out of tables: in pieces, in another order, some missing."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from hirag_dist.execution.stage import Services
from hirag_dist.indexing.stages.embed import EmbedChunks, vector_matrix, vector_rows, vector_table
from hirag_dist.llm.embedding import TextsRefused
from hirag_dist.schemas import REJECTS

VECTORS = np.arange(12, dtype=np.float32).reshape(6, 2)


def table(pieces: tuple[int, ...]) -> pa.Table:
    whole = vector_table(pa.chunked_array([[str(row) for row in range(6)]]), VECTORS)
    bounds = [0, *np.cumsum(pieces).tolist()]
    return pa.concat_tables(whole.slice(first, stop - first) for first, stop in pairwise(bounds))


@pytest.mark.parametrize("rows", [[5, 3, 0, 4], [2, -1, 2]])
def test_rows_of_vectors(rows: list[int]) -> None:
    pieces = (1, 0, 3, 2)
    found = vector_rows(table(pieces), 2, np.array(rows, np.int64))
    assert found.tolist() == [VECTORS[row].tolist() if row >= 0 else [0.0, 0.0] for row in rows]
    assert vector_matrix(table(pieces), 2).tolist() == VECTORS.tolist()


class Refusing:
    """Embeds every text but one."""

    async def embed(self, texts: list[str]) -> np.ndarray:
        vectors = np.ones((len(texts), 2), np.float32)
        refused = [row for row, text in enumerate(texts) if text == "Noether"]
        vectors[refused] = 0.0
        if refused:
            raise TextsRefused(vectors, dict.fromkeys(refused, "no vector for the text that begins 'Noether'"))
        return vectors


async def test_a_text_without_a_vector_is_a_dead_letter_and_all_others_have_theirs() -> None:
    chunks = pa.table({"chunk_id": ["c0", "c1", "c2"], "text": ["Curie", "Noether", "Fermi"]})
    services: Services = SimpleNamespace(embedder=Refusing())  # type: ignore[assignment]
    found = await EmbedChunks("m", 2).run({"chunks": chunks}, services)
    assert vector_matrix(found["vectors"], 2).tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
    assert found["rejects"].schema == REJECTS
    letters = found["rejects"].to_pylist()
    assert [(each["stage"], each["unit_id"], each["request"]) for each in letters] == [
        ("embed_chunks", "c1", "Noether")
    ]
    assert "begins 'Noether'" in letters[0]["reason"]
