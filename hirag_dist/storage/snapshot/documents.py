"""Documents of a snapshot, the chunks, entities, relations and dead letters of each, and tokens used for their text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.retrieval.places import METADATA, is_named, unit_of
from hirag_dist.storage.layout import DOCUMENT_METADATA
from hirag_dist.storage.snapshot.reader import Snapshot

_COUNTS = ("n_chunks", "n_tokens", "n_entities", "n_relations", "n_dead_letters")
_COLUMNS = ("document_id", "uri", "record", "title", "source_ids", "labels", "n_chars")


@dataclass(frozen=True, slots=True)
class IndexedDocument:
    """One document and the counts of what comes from it.

    Attributes:
        record: position in a file of many records, else 0.
        source_ids: what its owner calls it.
        n_entities, n_relations: of layer 0, stated by at least one of its chunks; other documents may state them too.
        n_dead_letters: of its chunks and about its metadata.
        metadata: by declared field; a date is an ISO 8601 text.
    """

    document_id: str
    uri: str
    record: int
    title: str
    source_ids: tuple[str, ...]
    labels: tuple[str, ...]
    n_chars: int
    n_chunks: int
    n_tokens: int
    n_entities: int
    n_relations: int
    n_dead_letters: int
    metadata: Mapping[str, Any]


def list_documents(snapshot: Snapshot, patterns: tuple[str, ...] = ()) -> list[IndexedDocument]:
    """Return the documents of a snapshot that some patterns name (`is_named`), or all, by path and record."""
    table = snapshot.table("documents", _COLUMNS)
    if patterns:
        places = zip(table["uri"].to_pylist(), table["record"].to_pylist(), strict=True)
        matches = [any(is_named(*place, each) for each in patterns) for place in places]
        table = table.filter(pa.array(matches, pa.bool_()))
    table = table.sort_by([("uri", "ascending"), ("record", "ascending")])
    chunks = snapshot.table("chunks", ["chunk_id", "document_id", "n_tokens"])
    document_of = _row_of(chunks["document_id"], table["document_id"])
    n_tokens = np.bincount(
        document_of + 1, weights=chunks["n_tokens"].to_numpy().astype(np.float64), minlength=table.num_rows + 1
    )
    chunk_ids = chunks["chunk_id"].combine_chunks()
    letters = snapshot.table("rejects", ["stage", "unit_id"])
    faults = letters.filter(pc.equal(letters["stage"], METADATA))["unit_id"]
    units = pa.array(map(unit_of, table["uri"].to_pylist(), table["record"].to_pylist()), pa.string())
    counts = {
        "n_chunks": np.bincount(document_of + 1, minlength=table.num_rows + 1)[1:],
        "n_tokens": n_tokens[1:].astype(np.int64),
        "n_dead_letters": _count(document_of, _row_of(letters["unit_id"], chunk_ids), table)
        + _count(np.arange(table.num_rows), _row_of(faults, units), table),
    }
    for name, source in (("n_entities", "entities"), ("n_relations", "relations")):
        lists = snapshot.table(source, ["chunk_ids"])["chunk_ids"].combine_chunks()
        stated = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        stated_by = document_of[_row_of(pc.list_flatten(lists), chunk_ids)]
        known = stated_by >= 0  # then the document of each distinct pair of a document and what it states
        of_documents, _ = np.unique(np.stack([stated_by[known], stated[known]]), axis=1)
        counts[name] = np.bincount(of_documents, minlength=table.num_rows)
    stored = snapshot.table(DOCUMENT_METADATA)
    metadata = dict(zip(stored["document_id"].to_pylist(), stored["metadata"].to_pylist(), strict=True))
    numbers = zip(*(counts[name].tolist() for name in _COUNTS), strict=True)
    return [
        IndexedDocument(
            row["document_id"],
            row["uri"],
            row["record"],
            row["title"],
            tuple(row["source_ids"]),
            tuple(row["labels"]),
            row["n_chars"],
            **dict(zip(_COUNTS, own, strict=True)),
            metadata=json.loads(metadata.get(row["document_id"], "{}")),
        )
        for row, own in zip(table.to_pylist(), numbers, strict=True)
    ]


def _row_of(values: pa.Array | pa.ChunkedArray, among: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the position of each value, -1 where it is absent."""
    found = pc.fill_null(pc.index_in(values, value_set=among), -1)
    rows: NDArray[np.int64] = found.to_numpy(zero_copy_only=False).astype(np.int64)
    return rows


def _count(document_of: NDArray[np.int64], units: NDArray[np.int64], table: pa.Table) -> NDArray[np.int64]:
    """Return how many of the units each document has; units are rows of `document_of`, -1 for none."""
    documents = document_of[units[units >= 0]]
    return np.bincount(documents[documents >= 0], minlength=table.num_rows)


def tokens_per_corpus_token(snapshot: Snapshot, usage: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the tokens of replies, in and out (USAGE), for each token of a snapshot's chunks; None without any.

    Returns:
        `total`, and `by_stage`: label → the ratio of one stage. Tokens that overlapping chunks share count in each.
    """
    corpus_tokens = pc.sum(snapshot.table("chunks", ["n_tokens"])["n_tokens"]).as_py()
    if not corpus_tokens:
        return None
    stages: dict[str, int] = {}
    for row in usage:
        stages[row["stage"]] = stages.get(row["stage"], 0) + row["input_tokens"] + row["output_tokens"]
    return {
        "total": sum(stages.values()) / corpus_tokens,
        "by_stage": {stage: tokens / corpus_tokens for stage, tokens in stages.items()},
    }
