"""Remarks about the content of a snapshot, counted when it is published: copies, cut descriptions, zero vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from hirag_dist.core.access import Flags
from hirag_dist.core.retrieval.places import record_name
from hirag_dist.core.text.normalize import count_noun
from hirag_dist.core.vectors import Vectors, parts_of
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.types import FloatMatrix

NOTE = "content"  # of the manifest
_BLOCK_ROWS = 65_536
_N_NAMED = 3  # documents without an entity


def content_notes(
    documents: pa.Table,
    chunks: pa.Table,
    entities: pa.Table,
    cut: Iterable[str],
    vectors: Iterable[Vectors],
    base: Manifest | None = None,
) -> dict[str, Any]:
    """Return the note for the manifest.

    Args:
        cut: ids of entities and relations with more descriptions than are merged.
        base: manifest of the snapshot from which the first matrix of vectors in two matrices was taken.
    """
    known = base is not None and base.notes.get(NOTE, {}).get("zero_vectors") == 0
    named = pc.unique(pc.list_flatten(entities["chunk_ids"]))
    with_some = pc.unique(chunks["document_id"].filter(pc.is_in(chunks["chunk_id"], value_set=named)))
    bare = documents.filter(pc.invert(pc.is_in(documents["document_id"], value_set=with_some)))
    n_names = int(pc.sum(pc.list_value_length(documents["source_ids"])).as_py() or 0)
    return {
        "copies": n_names - documents.num_rows,
        "cut_ids": sorted(cut),
        "zero_vectors": sum(_zero_rows(some, known) for some in vectors),
        "without_entities": bare.num_rows,
        "first_without_entities": [
            record_name(row["uri"], row["record"])
            for row in bare.select(["uri", "record"]).slice(0, _N_NAMED).to_pylist()
        ],
    }


def is_sparse(manifest: Manifest) -> bool:
    """Return whether at least half of the documents of a snapshot have no entity."""
    n_documents = manifest.counts["documents"]
    return n_documents > 0 and 2 * content_counts(manifest)["without_entities"] >= n_documents


def first_without_entities(manifest: Manifest) -> list[str]:
    """Return the names of the first documents of a snapshot that have no entity, at most three."""
    return list(manifest.notes.get(NOTE, {}).get("first_without_entities", ()))


def cut_ids(manifest: Manifest) -> frozenset[str]:
    """Return the ids of the entities and relations of a snapshot with more descriptions than are merged."""
    return frozenset(manifest.notes.get(NOTE, {}).get("cut_ids", ()))


def content_counts(manifest: Manifest) -> dict[str, int]:
    """Return the counts of remarks about a snapshot; zeros for one of an earlier version.

    Returns:
        `copies`: documents that were given under another name too; `cut_descriptions`: entities and relations of layer
        0 with more descriptions than are merged; `zero_vectors`: vectors of entities and chunks that are zero;
        `without_entities`: documents in which no entity was found.
    """
    note: Mapping[str, Any] = manifest.notes.get(NOTE, {})
    return {
        "copies": note.get("copies", 0),
        "cut_descriptions": len(cut_ids(manifest)),
        "zero_vectors": note.get("zero_vectors", 0),
        "without_entities": note.get("without_entities", 0),
    }


def remark_lines(counts: Mapping[str, int]) -> list[str]:
    """Return the remarks for a person, those that count something; `without_entities` has a line of its own.

    >>> remark_lines({"copies": 2, "cut_descriptions": 0, "zero_vectors": 0})
    ['2 documents have the text and labels of another: each text is indexed once, under all its ids.']
    """
    copies = count_noun(counts["copies"], "document has", "documents have")
    cut = count_noun(counts["cut_descriptions"], "entity or relation has", "entities or relations have")
    zero = count_noun(counts["zero_vectors"], "vector is", "vectors are")
    lines = {
        "copies": f"{copies} the text and labels of another: each text is indexed once, under all its ids.",
        "cut_descriptions": f"{cut} more descriptions than are merged: the first 1,000 are, up to 200,000 characters.",
        "zero_vectors": f"{zero} zero: the embedder finds nothing in these texts, and no question is near them.",
    }
    return [line for name, line in lines.items() if counts[name]]


def _zero_rows(vectors: Vectors, known: bool) -> int:
    """Return the number of zero vectors; where it is known that the first of two matrices has none, it is not read."""
    stored, changed, slots = parts_of(vectors)
    in_stored = np.zeros(len(stored), np.bool_) if known and len(slots) else _are_zero(stored)
    is_zero = np.concatenate([in_stored, _are_zero(changed)])
    return int(np.count_nonzero(is_zero[slots] if len(slots) else is_zero))


def _are_zero(matrix: FloatMatrix) -> Flags:
    """Return (n_rows,) whether all numbers of a row are zero."""
    is_zero: Flags = matrix[:, 0] == 0.0
    candidates = np.flatnonzero(is_zero)
    for first in range(0, len(candidates), _BLOCK_ROWS):
        rows = candidates[first : first + _BLOCK_ROWS]
        is_zero[rows] = ~matrix[rows].any(axis=1)
    return is_zero
