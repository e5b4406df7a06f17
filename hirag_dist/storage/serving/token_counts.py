"""Token counts of records as rendered in contexts, counted once when a snapshot is published.

Counting the tokens of a record takes longer than retrieving it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.retrieval.context import entity_text, relation_parts, source_text
from hirag_dist.core.text.tokens import counter
from hirag_dist.storage.serving.column_arrays import Batches
from hirag_dist.storage.serving.text_columns import BATCH_ROWS

TOKENIZER: Final = "o200k_base"

Counts = NDArray[np.int32]  # (n,) tokens of each record of a table


def token_counts(texts: Sequence[str]) -> Counts:
    """Return the tokens of each text."""
    return np.fromiter(map(counter(TOKENIZER), texts), np.int32, len(texts))


def chunk_tokens(batches: Batches, documents: NDArray[np.int32], known: Counts) -> Counts:
    """Return the tokens of each chunk.

    Args:
        batches: as of `write_serving`.
        documents: (n_chunks,) row of the document of each, −1 for an unknown one.
        known: (n_chunks,) counts that are known, −1 elsewhere.
    """
    titles = pa.chunked_array([batch.column(0) for batch in batches("documents", ["title"])], pa.string())
    found, first = known.copy(), 0
    for batch in batches("chunks", ["start", "end", "text"]):
        own = found[first : first + batch.num_rows]
        rows = np.flatnonzero(own < 0)
        if len(rows):
            of = documents[first + rows]
            named = titles.take(pa.array(of, mask=of < 0)).fill_null("").to_pylist()
            own[rows] = token_counts(list(map(source_text, named, *_columns(batch, rows))))
        first += batch.num_rows
    return found


def entity_tokens(batches: Batches, known: Counts) -> Counts:
    """Return the tokens of each entity.

    Args:
        batches: as of `write_serving`.
        known: (n_entities,) counts that are known, −1 elsewhere.
    """
    found, first = known.copy(), 0
    for batch in batches("entities", ["name", "type", "layer", "description"]):
        own = found[first : first + batch.num_rows]
        rows = np.flatnonzero(own < 0)
        if len(rows):
            own[rows] = token_counts(list(map(entity_text, *_columns(batch, rows))))
        first += batch.num_rows
    return found


def relation_tokens(batches: Batches, ends: NDArray[np.int32], known: Counts) -> Counts:
    """Return the tokens of each relation.

    The names at the ends are those of entities, and relations of one sentence share a description: each distinct text
    is counted once.

    Args:
        batches: as of `write_serving`.
        ends: (n_relations, 2) rows of the entities at its ends, −1 for an unknown one.
        known: (n_relations,) counts that are known, −1 elsewhere.
    """
    counted = np.flatnonzero(known < 0)
    found = known.copy()
    if not len(counted):
        return found
    sources, targets = _end_tokens(batches, ends[counted])
    found[counted] = sources[ends[counted, 0]] + targets[ends[counted, 1]]
    first = 0
    for batch in batches("relations", ["description"]):
        own = found[first : first + batch.num_rows]
        rows = np.flatnonzero(known[first : first + batch.num_rows] < 0)
        if len(rows):
            described = batch.column(0).take(pa.array(rows)).dictionary_encode()
            parts = [relation_parts("", "", text) for text in described.dictionary.to_pylist()]
            tokens = token_counts([description for _, _, description in parts])
            own[rows] += tokens[described.indices.to_numpy()]
        first += batch.num_rows
    return found


def _end_tokens(batches: Batches, ends: NDArray[np.int32]) -> tuple[Counts, Counts]:
    """Return (n_entities + 1,) tokens of each entity's name as the source and as the target of a relation.

    Only the entities at the ends are counted, and the empty name of an unknown one, in the last row.
    """
    names = pa.chunked_array([batch.column(0) for batch in batches("entities", ["name"])], pa.string())
    found = np.zeros((2, len(names) + 1), np.int32)
    for end, counts in enumerate(found):
        wanted = np.zeros(len(counts), np.bool_)
        wanted[ends[:, end]] = True
        for first in range(0, len(names), BATCH_ROWS):
            rows = first + np.flatnonzero(wanted[first : min(first + BATCH_ROWS, len(names))])
            named = names.slice(first, BATCH_ROWS).combine_chunks().take(pa.array(rows - first)).to_pylist()
            counts[rows] = token_counts([relation_parts(name, name, "")[end] for name in named])
        counts[-1:] = token_counts(relation_parts("", "", "")[end : end + 1])
    return found[0], found[1]


def _columns(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> list[list[str]]:
    taken = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows))
    return [column.to_pylist() for column in taken.columns]
