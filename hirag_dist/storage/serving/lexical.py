"""The lexical index of chunks among the serving files. It is optional: older snapshots have none.

Where the texts of chunks lie in two files, so does the index: a part for the chunks in each.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hirag_dist.core.arrays import read_only
from hirag_dist.core.retrieval.lexical import LexicalIndex, LexicalPart
from hirag_dist.storage.layout import CHANGED, SLOTS, STORED
from hirag_dist.storage.serving.mmap_files import ServingFiles, damaged
from hirag_dist.storage.serving.text_columns import are_rows

LEXICAL_ARRAYS: Final = ("term_keys", "term_indptr", "term_chunks", "term_counts", "chunk_terms")  # a `LexicalIndex`
FREQUENCIES: Final = "term_frequencies"  # how many chunks have each term of the stored part


def map_lexical(files: ServingFiles) -> tuple[LexicalPart, ...]:
    """Return the parts of the lexical index, mapped; none where there is no index.

    Raises:
        SnapshotCorrupt: they do not belong to the texts of the chunks, or a file is damaged.
    """
    if not (files.is_slotted("chunks") and files.has(FREQUENCIES)):
        return (LexicalPart(_mapped(files, "")),) if files.has(LEXICAL_ARRAYS[0]) else ()
    stored, changed, texts = _mapped(files, STORED), _mapped(files, CHANGED), files.texts("chunks.arrow")
    slots, n_stored = files.array(SLOTS["chunks"]), len(stored.lengths)
    rows = np.full(n_stored + len(changed.lengths), -1, np.int32)
    is_whole = texts.n_stored == n_stored and are_rows(slots, len(rows))
    if is_whole:
        rows[slots] = np.arange(len(slots))
        is_whole = np.count_nonzero(rows >= 0) == len(slots)  # compiled code writes a score for each row
    if not is_whole:
        raise damaged(files.folder / f"{SLOTS['chunks']}.npy", "expected a place of its own for each chunk")
    own, new = read_only(rows[:n_stored]), read_only(rows[n_stored:])
    return LexicalPart(stored, own, files.array(FREQUENCIES)), LexicalPart(changed, new)


def _mapped(files: ServingFiles, prefix: str) -> LexicalIndex:
    return LexicalIndex(*(files.array(f"{prefix}{name}") for name in LEXICAL_ARRAYS))
