"""What a new snapshot takes of its base: values of rows that have the same texts, and rows that stay in its files.

Rendering texts, counting their tokens and hashing names are Python work for each row. An update changes few rows, so
the values of the others are taken from the serving files of its base. A row is the same when its id and every text that
the value is derived from are: what is taken equals what would be derived.

Texts and vectors of entities, relations, chunks and reports are most of a snapshot. The file that a former snapshot
wrote of such a table is linked into the new one, and the rows that it does not have are written into a second file. An
array of slots says where each row lies: in the first file or, from its end on, in the second. The lexical index of
chunks is divided as their texts are. The first file is written anew when the second would hold more than a tenth of the
rows, or when more than a quarter of its own rows would be unused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.access import Flags
from hirag_dist.core.retrieval.lexical import LexicalPart
from hirag_dist.core.row_changes import one_array
from hirag_dist.core.vectors import Vectors, parts_of
from hirag_dist.storage.serving.column_arrays import Batches, numbers, rows_of_column
from hirag_dist.storage.serving.lexical import map_lexical
from hirag_dist.storage.serving.mmap_files import ServingFiles, damaged, map_array
from hirag_dist.storage.serving.renderings import Renderings, serving_texts
from hirag_dist.storage.serving.text_columns import BATCH_ROWS, TextColumns
from hirag_dist.types import IntVector

Rows = NDArray[np.int32]  # of the base; −1 for a row that it does not have

_IDS: Final = {
    "entities": "entity_id",
    "relations": "relation_id",
    "chunks": "chunk_id",
    "communities": "community_id",
}
ARRAYS: Final = (  # that values are taken from: the caller checks that they are whole
    "entity_layers",
    "entity_renderings",
    "entity_name_keys",
    "entity_name_rows",
    "relation_ends",
    "relation_renderings",
    "chunk_documents",
    "chunk_spans",
    "chunk_renderings",
    "community_levels",
    "community_ratings",
    "community_reports",
    "community_renderings",
)
_ROWS_OF: Final = {  # an array with a row for each row of a table
    "entities": "entity_renderings",
    "relations": "relation_renderings",
    "chunks": "chunk_renderings",
    "communities": "community_renderings",
}
_TEXTS: Final = ("entities", "relations", "chunks", "communities", "documents", "reports")
_COLUMNS: Final = {  # columns of the texts of a row, its id aside
    "entities": ["name", "type", "description"],
    "relations": ["kind", "description"],
    "chunks": ["document_id", "text"],
    "reports": ["title", "text"],
}
_MAX_SPREAD: Final = 8  # batches of the base that are compared with one batch
_OTHER_NAME: Final = -2  # −1 is an unknown entity


class BaseFiles:
    """The serving files of a base that values are taken from, mapped: they stay readable when the base is pruned.

    Attributes:
        arrays: by their names.
        texts: by table.
        lexical: parts of the lexical index; none where there is no index.
    """

    def __init__(self, folder: Path, *, lexical: bool = False, slotted: Collection[str] = ()) -> None:
        """Map the files.

        Args:
            lexical: whether there is a lexical index: older snapshots have none.
            slotted: tables whose texts lie in two files.

        Raises:
            SnapshotCorrupt: a file is damaged or gone.
        """
        self.arrays = {name: map_array(folder / f"{name}.npy") for name in ARRAYS}
        files = ServingFiles(folder, slotted=slotted)
        self.lexical = map_lexical(files) if lexical else ()
        self.texts = {table: files.texts(f"{table}.arrow") for table in _TEXTS}
        for table, name in _ROWS_OF.items():
            n_rows, expected = self.texts[table].n_rows, len(self.arrays[name])
            if n_rows != expected:
                raise damaged(folder / f"{table}.arrow", f"expected {expected:,} rows, got {n_rows:,}")

    def ids(self, table: str) -> pa.ChunkedArray:
        """Return the ids of the rows of a table: mapped, or where they lie in two files in memory."""
        texts, name = self.texts[table], _IDS[table]
        if texts.slots is None:
            return texts.table([name]).column(0)
        blocks = (texts.table([name], at, at + BATCH_ROWS).column(0) for at in range(0, texts.n_rows, BATCH_ROWS))
        return pa.chunked_array([chunk for block in blocks for chunk in block.chunks], pa.string())

    def values(self, name: str, rows: Rows) -> NDArray[Any]:
        """Return the values of an array by row; any value at −1."""
        values = self.arrays[name]
        return values[rows] if len(values) else np.zeros((len(rows), *values.shape[1:]), values.dtype)

    def rows(self, table: str, batches: Batches) -> Rows:
        """Return the base's row of each row of a table."""
        if table == "reports":
            rows = self.communities_of_reports(batches)
            return np.where(rows >= 0, self.values("community_reports", rows), -1).astype(np.int32)
        return rows_of_column(batches, table, _IDS[table], self.ids(table))

    def communities_of_reports(self, batches: Batches) -> Rows:
        """Return the base's row of the community of each report."""
        return rows_of_column(batches, "reports", _IDS["communities"], self.ids("communities"))


class BaseValues:
    """Values of the rows of a base; −1 for each row without one, and for all rows where there is no base."""

    def __init__(self, base: BaseFiles | None) -> None:
        """Prepare for one new snapshot, of a base or, with None, without one."""
        self._base = base
        self._named_as: Rows | None = None  # base row of each entity that has the same name there
        self._rows: dict[str, Rows] = {}
        self._flags: dict[tuple[str, str], Flags] = {}

    @property
    def has_base(self) -> bool:
        """Whether there are values of a base."""
        return self._base is not None

    def rows(self, batches: Batches, table: str) -> Rows:
        """Return the base's row of each row of a table, −1 for one that it does not have; a copy."""
        assert self._base is not None
        if table not in self._rows:
            self._rows[table] = self._base.rows(table, batches)
        return self._rows[table].copy()

    def unchanged(self, batches: Batches, table: str) -> Flags:
        """Return whether the base has a row of the same id with the same texts: (n_rows,)."""
        return self._same(batches, table, _COLUMNS[table])

    def slots(self, table: str, rows: Rows) -> tuple[NDArray[np.int32], int]:
        """Return (n,) slots of rows of the base, any slot at −1, and the number of rows in the base's first file."""
        assert self._base is not None
        texts = self._base.texts[table]
        return (rows.copy() if texts.slots is None else texts.slots[rows]), texts.n_stored

    def entity_renderings(self, batches: Batches) -> Renderings:
        """Return (n_entities,) known renderings, −1 elsewhere."""
        layers = numbers(batches, "entities", "layer", np.int32)
        if self._base is None:
            return np.full(len(layers), -1, np.int32)
        rows = self.rows(batches, "entities")
        rows[self._base.values("entity_layers", rows) != layers] = -1
        same = self._same(batches, "entities", ["name"])
        self._named_as = np.where(same & (rows >= 0), rows, _OTHER_NAME).astype(np.int32)
        rows[~same] = -1
        return self._taken("entity_renderings", rows, self._same(batches, "entities", ["type", "description"]))

    def name_keys(self, n_entities: int) -> tuple[NDArray[np.uint64], NDArray[np.int8]]:
        """Return (n_entities,) keys of names, and whether each has one: 1, or 0, or −1 where it is not known.

        `entity_renderings` comes first.
        """
        if self._base is None or self._named_as is None:
            return np.zeros(n_entities, np.uint64), np.full(n_entities, -1, np.int8)
        n_before = len(self._base.arrays["entity_layers"])
        keys, states = np.zeros(n_before + 1, np.uint64), np.zeros(n_before + 1, np.int8)
        named = self._base.arrays["entity_name_rows"]
        keys[named], states[named], states[-1] = self._base.arrays["entity_name_keys"], 1, -1
        rows = np.where(self._named_as >= 0, self._named_as, n_before)
        return keys[rows], states[rows]

    def relation_renderings(self, batches: Batches, ends: NDArray[np.int32]) -> Renderings:
        """Return (n_relations,) known renderings, −1 elsewhere. `entity_renderings` comes first.

        Args:
            ends: (n_relations, 2) entity rows, −1 for an unknown one.
        """
        if self._base is None or self._named_as is None:
            return np.full(len(ends), -1, np.int32)
        rows = self.rows(batches, "relations")
        now = np.append(self._named_as, np.int32(-1))[ends]
        rows[(now != self._base.values("relation_ends", rows)).any(axis=1)] = -1
        return self._taken("relation_renderings", rows, self._same(batches, "relations", ["description"]))

    def chunk_renderings(self, batches: Batches, documents: NDArray[np.int32]) -> Renderings:
        """Return (n_chunks,) known renderings, −1 elsewhere.

        Args:
            documents: (n_chunks,) row of the document of each, −1 for an unknown one.
        """
        if self._base is None:
            return np.full(len(documents), -1, np.int32)
        rows = self.rows(batches, "chunks")
        spans = np.column_stack([numbers(batches, "chunks", name, np.int64) for name in ("start", "end")])
        rows[(spans != self._base.values("chunk_spans", rows)).any(axis=1)] = -1
        titles = pa.chunked_array([batch.column(0) for batch in batches("documents", ["title"])], pa.string())
        before = self._base.texts["documents"].table(["title"]).column(0)
        same = _equal(_titles(titles, documents), _titles(before, self._base.values("chunk_documents", rows)))
        rows[~same] = -1
        return self._taken("chunk_renderings", rows, self._same(batches, "chunks", ["text"]))

    @property
    def has_lexical(self) -> bool:
        """Whether the base has a lexical index."""
        return self._base is not None and bool(self._base.lexical)

    def lexical(self, batches: Batches) -> tuple[Sequence[LexicalPart], IntVector | None]:
        """Return the base's lexical index, and (n_chunks,) the row of each chunk with the same text, −1 elsewhere."""
        if self._base is None or not self._base.lexical:
            return (), None
        rows = self.rows(batches, "chunks")
        rows[~self._same(batches, "chunks", ["text"])] = -1
        return self._base.lexical, rows.astype(np.int64)

    def report_renderings(self, batches: Batches) -> Renderings:
        """Return (n_reports,) known renderings, −1 elsewhere."""
        levels = numbers(batches, "reports", "level", np.int32)
        if self._base is None:
            return np.full(len(levels), -1, np.int32)
        rows = self._base.communities_of_reports(batches)
        rows[self._base.values("community_levels", rows) != levels] = -1
        ratings = numbers(batches, "reports", "rating", np.float64)
        rows[self._base.values("community_ratings", rows) != ratings] = -1
        return self._taken("community_renderings", rows, self.unchanged(batches, "reports"))

    def _taken(self, name: str, rows: Rows, same: Flags) -> Renderings:
        assert self._base is not None
        found: Renderings = np.where(same & (rows >= 0), self._base.values(name, rows), -1).astype(np.int32)
        return found

    def _same(self, batches: Batches, table: str, columns: Sequence[str]) -> Flags:
        """Return (n_rows,) whether the base has a row of the same id with the same values in some columns of texts."""
        assert self._base is not None
        missing = [name for name in columns if (table, name) not in self._flags]
        if missing:
            before, rows = self._base.texts[table], self.rows(batches, table)
            found, first = [np.zeros((len(missing), 0), np.bool_)], 0
            for batch in serving_texts(batches, table, missing):
                found.append(_same_texts(batch, before, rows[first : first + batch.num_rows]))
                first += batch.num_rows
            self._flags |= {(table, name): flags for name, flags in zip(missing, np.hstack(found), strict=True)}
        same: Flags = np.logical_and.reduce([self._flags[table, name] for name in columns])
        return same


def _same_texts(batch: pa.RecordBatch, before: TextColumns, rows: Rows) -> NDArray[np.bool_]:
    """Return (n_columns, n_rows) whether each value is that of its row in other columns; False at −1."""
    same = np.zeros((batch.num_columns, len(rows)), np.bool_)
    known = np.flatnonzero(rows >= 0)
    if not len(known):
        return same
    at = rows[known]
    low, high = int(at.min()), int(at.max()) + 1
    if high - low > _MAX_SPREAD * BATCH_ROWS:
        return same  # the tables differ too much in their order
    window = before.table(batch.schema.names, low, high)
    for own, column, other in zip(same, batch.columns, window.columns, strict=True):
        one, other = column.cast(pa.large_string()), one_array(other).cast(pa.large_string())
        one = one if len(known) == len(one) else one.take(pa.array(known))
        in_step = len(at) == len(other) and bool((np.diff(at) == 1).all())
        own[known] = _equal(one, other if in_step else other.take(pa.array(at - low)))
    return same


def _equal(one: pa.Array, other: pa.Array) -> Flags:
    equal: Flags = pc.equal(one, other).to_numpy(zero_copy_only=False)
    return equal


def _titles(titles: pa.ChunkedArray, rows: Rows) -> pa.Array:
    """Return the title of each document; an empty one at −1."""
    found = one_array(titles).take(pa.array(rows, mask=rows < 0))
    return found.fill_null("")


MIN_ROWS: Final = 1 << 12  # minimum rows of a table whose rows are kept; small files are written in milliseconds
MAX_CHANGED: Final = 0.1  # maximum share of rows in the second file
MAX_UNUSED: Final = 0.25  # maximum unused rows of the first file, as a share of the table's rows
_BLOCK_ROWS: Final = 1 << 15  # number of vectors compared at a time


@dataclass(frozen=True, slots=True)
class KeptRows:
    """How the rows of a table are divided between the file of a former snapshot and a new one.

    Attributes:
        slots: (n_rows,) row in the first file or, from its end on, in the second.
        changed: (n_rows,) whether a row is written into the second.
    """

    slots: NDArray[np.int32]
    changed: Flags

    def written(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table's batches that are written into the second file."""
        first = 0
        for batch in batches:
            yield batch.filter(pa.array(self.changed[first : first + batch.num_rows]))
            first += batch.num_rows


def kept_rows(
    values: BaseValues, batches: Batches, table: str, vectors: tuple[Vectors, Vectors] | None = None
) -> KeptRows | None:
    """Return where the rows of a table lie; None where the whole table is to be written.

    Memory: a few numbers a row, a block of texts and vectors, and the ids of a base whose rows lie in two files.

    Args:
        table: one of `layout.SLOTS`.
        vectors: (n_rows, dim) of the rows, and (n_base_rows, dim) of the base's; None: the table has none.
    """
    rows = values.rows(batches, table)
    if len(rows) < MIN_ROWS:
        return None
    same = values.unchanged(batches, table)
    if vectors is not None:
        now, before = vectors
        if now.shape[1] != before.shape[1]:
            return None
        _compare(now, before, rows, same)
    slots, n_stored = values.slots(table, rows)
    changed = ~same | (slots >= n_stored)
    n_changed = int(changed.sum())
    if is_too_much(n_changed, n_stored, len(rows)):
        return None
    slots[changed] = n_stored + np.arange(n_changed, dtype=np.int32)
    return KeptRows(slots, changed)


def max_changed(n_rows: int) -> int:
    """Return how many rows of a table may lie in the second file."""
    return int(MAX_CHANGED * n_rows)


def is_too_much(n_changed: int, n_stored: int, n_rows: int) -> bool:
    """Return whether a table is to be written whole.

    Args:
        n_changed: number of rows in the second file.
        n_stored: number of rows in the first file, with those that are unused.
        n_rows: number of rows of the table.
    """
    n_unused = n_stored - (n_rows - n_changed)
    return n_changed > max_changed(n_rows) or n_unused > MAX_UNUSED * n_rows


def _compare(vectors: Vectors, before: Vectors, rows: NDArray[np.int32], same: Flags) -> None:
    """Clear the flags of rows whose vector is not that of their row in the base, bit for bit."""
    now, then = parts_of(vectors), parts_of(before)
    in_step = np.zeros(len(rows), np.bool_)  # rows whose vector lies where that of the base does
    if len(now.slots) and now.stored.ctypes.data == then.stored.ctypes.data:
        own = then.slots[rows] if len(then.slots) else rows
        in_step = (now.slots == own) & (own < len(then.stored))
    for first in range(0, len(rows), _BLOCK_ROWS):
        at = slice(first, first + _BLOCK_ROWS)
        known = first + np.flatnonzero(same[at] & ~in_step[at])
        pair = (vectors[known], before[rows[known]])
        one, other = (np.ascontiguousarray(part, "<f4").view(np.uint32) for part in pair)
        same[known] = (one == other).all(axis=1)
