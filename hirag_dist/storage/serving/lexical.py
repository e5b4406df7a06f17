"""The lexical index of chunks among the serving files. It is optional: older snapshots have none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.retrieval.lexical import LexicalIndex, LexicalIndexBuilder
from hirag_dist.storage.serving.base_values import LEXICAL_ARRAYS, BaseValues
from hirag_dist.storage.serving.column_arrays import Batches, Save
from hirag_dist.storage.serving.mmap_files import ServingFiles


def write_lexical(
    batches: Batches, save: Save, copied: Callable[[str, Sequence[str]], bool], values: BaseValues
) -> None:
    """Write the lexical index of the chunks.

    Args:
        batches, save, copied: as of `storage.serving.writer.write_serving`.
        values: of the base, whose postings of unchanged chunks are taken.
    """
    if all(copied(f"{name}.npy", ("chunks",)) for name in LEXICAL_ARRAYS):
        return
    builder = LexicalIndexBuilder()
    base, base_rows = values.lexical(batches)
    first = 0
    for batch in batches("chunks", ["text"]):
        rows = np.arange(first, first + batch.num_rows)
        rows = rows if base is None else rows[base_rows[rows] < 0]
        builder.add(rows, batch.column(0).take(pa.array(rows - first)).to_pylist())
        first += batch.num_rows
    arrays: Sequence[NDArray[Any]] = builder.built(first, base, base_rows)
    for name, array in zip(LEXICAL_ARRAYS, arrays, strict=True):
        save(name, array)


def map_lexical(files: ServingFiles) -> LexicalIndex | None:
    """Return the lexical index, mapped; None where there is none."""
    if not files.has(LEXICAL_ARRAYS[0]):
        return None
    return LexicalIndex(*map(files.array, LEXICAL_ARRAYS))
