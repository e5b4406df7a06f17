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

TOKENIZER: Final = "o200k_base"

Counts = NDArray[np.int32]  # (n,) tokens of each record of a table


def token_counts(texts: Sequence[str]) -> Counts:
    """Return the tokens of each text."""
    return np.fromiter(map(counter(TOKENIZER), texts), np.int32, len(texts))


def chunk_tokens(batches: Batches, documents: NDArray[np.int32]) -> Counts:
    """Return the tokens of each chunk.

    Args:
        batches: as of `write_serving`.
        documents: (n_chunks,) row of the document of each, −1 for an unknown one.
    """
    titles = pa.chunked_array([batch.column(0) for batch in batches("documents", ["title"])], pa.string())
    found = [np.zeros(0, np.int32)]
    first = 0
    for batch in batches("chunks", ["start", "end", "text"]):
        own = documents[first : first + batch.num_rows]
        named = titles.take(pa.array(own, mask=own < 0)).fill_null("").to_pylist()
        found.append(token_counts(list(map(source_text, named, *_columns(batch)))))
        first += batch.num_rows
    return np.concatenate(found)


def entity_tokens(batches: Batches) -> Counts:
    """Return the tokens of each entity."""
    found = [np.zeros(0, np.int32)]
    for batch in batches("entities", ["name", "type", "layer", "description"]):
        found.append(token_counts(list(map(entity_text, *_columns(batch)))))
    return np.concatenate(found)


def relation_tokens(batches: Batches, ends: NDArray[np.int32]) -> Counts:
    """Return the tokens of each relation.

    The names at the ends are those of entities, and relations of one sentence share a description: each distinct text
    is counted once.

    Args:
        batches: as of `write_serving`.
        ends: (n_relations, 2) rows of the entities at its ends, −1 for an unknown one.
    """
    sources, targets = [], []
    for batch in batches("entities", ["name"]):
        parts = [relation_parts(name, name, "") for name in batch.column(0).to_pylist()]
        sources.append(token_counts([source for source, _, _ in parts]))
        targets.append(token_counts([target for _, target, _ in parts]))
    unknown = relation_parts("", "", "")
    sources.append(token_counts(unknown[:1]))  # row −1
    targets.append(token_counts(unknown[1:2]))
    tokens: Counts = np.concatenate(sources)[ends[:, 0]] + np.concatenate(targets)[ends[:, 1]]
    first = 0
    for batch in batches("relations", ["description"]):
        described = batch.column(0).dictionary_encode()
        parts = [relation_parts("", "", text) for text in described.dictionary.to_pylist()]
        own = token_counts([description for _, _, description in parts])
        tokens[first : first + batch.num_rows] += own[described.indices.to_numpy()]
        first += batch.num_rows
    return tokens


def _columns(batch: pa.RecordBatch) -> list[list[str]]:
    return [column.to_pylist() for column in batch.columns]
