"""The lexical index among the serving files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from hirag_dist.core.retrieval.lexical import LexicalIndexBuilder
from hirag_dist.storage.serving.base_values import BaseValues
from hirag_dist.storage.serving.lexical import map_lexical
from hirag_dist.storage.serving.mmap_files import ServingFiles
from hirag_dist.storage.serving.writer import write_lexical

NO_BASE = BaseValues(None)
TEXTS = ["the ghost of Marley", "three ghosts", "東京 AB-12", ""]


def batches(table: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    assert (table, columns) == ("chunks", ["text"])
    for text in TEXTS:
        yield pa.record_batch([pa.array([text])], ["text"])


def test_the_index_is_mapped_as_it_was_built(tmp_path: Path) -> None:
    write_lexical(
        batches, lambda name, array: np.save(tmp_path / f"{name}.npy", array), lambda name, parts: False, NO_BASE, None
    )
    builder = LexicalIndexBuilder()
    builder.add(np.arange(len(TEXTS)), TEXTS)
    (mapped,) = map_lexical(ServingFiles(tmp_path))
    for array, expected in zip(mapped.index, builder.built(len(TEXTS)), strict=True):
        assert array.dtype == expected.dtype
        assert array.tolist() == expected.tolist()
