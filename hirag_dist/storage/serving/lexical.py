"""The lexical index of chunks among the serving files. It is optional: older snapshots have none.

Where the texts of chunks lie in two files, so does the index: a part for the chunks in each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.arrays import read_only
from hirag_dist.core.retrieval.lexical import LexicalIndex, LexicalIndexBuilder, LexicalPart, term_frequencies
from hirag_dist.storage.layout import CHANGED, SLOTS, STORED
from hirag_dist.storage.serving.column_arrays import Batches, Save
from hirag_dist.storage.serving.mmap_files import ServingFiles, damaged
from hirag_dist.storage.serving.text_columns import are_rows
from hirag_dist.types import IntVector

if TYPE_CHECKING:
    from hirag_dist.storage.serving.base_values import BaseValues
    from hirag_dist.storage.serving.kept_rows import KeptRows

LEXICAL_ARRAYS: Final = ("term_keys", "term_indptr", "term_chunks", "term_counts", "chunk_terms")  # of `LexicalIndex`
FREQUENCIES: Final = "term_frequencies"  # of the terms of the part that a former snapshot wrote


def write_lexical(
    batches: Batches,
    save: Save,
    copied: Callable[[str, Sequence[str]], bool],
    values: BaseValues,
    kept: KeptRows | None,
) -> None:
    """Write the lexical index of the chunks, or the part of those that changed.

    Args:
        batches, save, copied: as of `storage.serving.writer.write_serving`.
        values: of the base, whose postings of unchanged chunks are taken.
        kept: chunks that are there already, with their part of the index.
    """
    base, base_rows = values.lexical(batches)
    if kept is not None:
        changed = np.flatnonzero(kept.changed)
        if base_rows is not None:
            base_rows = base_rows[changed]
            base_rows[~np.isin(base_rows, base[-1].rows)] = -1  # the part that stays is not read for them
        _save(save, CHANGED, _built(kept.written(batches("chunks", ["text"])), base[1:], base_rows))
        used = np.zeros(len(base[0].index.lengths), np.bool_)
        used[kept.slots[~kept.changed]] = True
        save(FREQUENCIES, term_frequencies(base[0].index, used))
    elif not all(copied(f"{name}.npy", ("chunks",)) for name in LEXICAL_ARRAYS):
        _save(save, "", _built(batches("chunks", ["text"]), base, base_rows))


def _built(batches: Iterable[pa.RecordBatch], base: Sequence[LexicalPart], base_rows: IntVector | None) -> LexicalIndex:
    """Return the index of some texts, those of a base's rows without looking at them."""
    builder, first = LexicalIndexBuilder(), 0
    for batch in batches:
        rows = np.arange(first, first + batch.num_rows)
        rows = rows if base_rows is None else rows[base_rows[rows] < 0]
        builder.add(rows, batch.column(0).take(pa.array(rows - first)).to_pylist())
        first += batch.num_rows
    return builder.built(first, base, base_rows)


def _save(save: Save, prefix: str, index: Sequence[NDArray[Any]]) -> None:
    for name, array in zip(LEXICAL_ARRAYS, index, strict=True):
        save(f"{prefix}{name}", array)


def map_lexical(files: ServingFiles) -> tuple[LexicalPart, ...]:
    """Return the parts of the lexical index, mapped; none where there is no index.

    Raises:
        SnapshotCorrupt: they do not belong to the texts of the chunks.
    """
    if not (files.is_slotted("chunks") and files.has(FREQUENCIES)):
        return (LexicalPart(_mapped(files, "")),) if files.has(LEXICAL_ARRAYS[0]) else ()
    stored, changed = _mapped(files, STORED), _mapped(files, CHANGED)
    slots, n_stored = files.array(SLOTS["chunks"]), len(stored.lengths)
    if not are_rows(slots, n_stored + len(changed.lengths)):
        raise damaged(f"{SLOTS['chunks']}.npy", "it does not belong to the lexical index")
    rows = np.full(n_stored + len(changed.lengths), -1, np.int32)
    rows[slots] = np.arange(len(slots))
    own, new = read_only(rows[:n_stored]), read_only(rows[n_stored:])
    return LexicalPart(stored, own, files.array(FREQUENCIES)), LexicalPart(changed, new)


def _mapped(files: ServingFiles, prefix: str) -> LexicalIndex:
    return LexicalIndex(*(files.array(f"{prefix}{name}") for name in LEXICAL_ARRAYS))
