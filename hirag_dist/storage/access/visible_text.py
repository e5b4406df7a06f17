"""Texts of partially visible rows, rebuilt from the visible mentions as a build without the other documents would."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access.labels import PARTIAL, Flags, LabelPatterns, description_of
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN, merge_groups, merge_strengths
from hirag_dist.storage.access.label_files import LabelFiles
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.types import IntVector

TextRows = list[dict[str, str]]  # column → text, of each row
_MAX_CACHED = 1024  # rows


def visible_entity_text(files: LabelFiles, in_reach: Flags, rows: IntVector) -> TextRows:
    """Return name, type and description of partially visible entities.

    Args:
        files: of labels.
        in_reach: (n_sets + 1,) by label set.
        rows: ascending.
    """
    mentions = files.mentions
    owners, positions = mentions.visible(rows, in_reach)
    columns = mentions.columns(positions, ("chunk_id", "name", "type", "description"))
    columns["described"] = mentions.numbers[positions]
    numbers = [f"{at:08d}" for at in range(len(rows))]  # keys that sort in the order of the rows
    merged = merge_groups(pa.table(columns), owners, numbers).select(["name", "type", "description"]).to_pylist()
    return [row | {"description": description_of(row["description"], files.max_tokens)} for row in merged]


def visible_relation_text(files: LabelFiles, in_reach: Flags, rows: IntVector) -> TextRows:
    """Return the description of partially visible relations; the arguments are those of `visible_entity_text`."""
    statements = files.statements
    owners, positions = statements.visible(rows, in_reach)
    columns = statements.columns(positions, ("chunk_id", "description"))
    columns["strength"] = statements.numbers[positions]
    merged = merge_strengths(pa.table(columns), owners, len(rows), files.max_tokens * CHARS_PER_TOKEN)
    return [{"description": text} for text in merged.descriptions]


class FilteredTextColumns(TextColumns):
    """Columns of text in which the values of partially visible rows are replaced."""

    def __init__(
        self,
        stored: TextColumns,
        patterns: LabelPatterns,
        states: NDArray[np.uint8],
        rebuild: Callable[[IntVector], TextRows],
    ) -> None:
        """Replace values of stored columns.

        Args:
            patterns: label patterns of the rows.
            states: (n_patterns,) visibility.
            rebuild: rows → the replaced columns of each.
        """
        self.n_rows = stored.n_rows
        self._stored = stored
        self._patterns = patterns
        self._states = states
        self._rebuild = rebuild
        self._cache: dict[int, dict[str, str]] = {}

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        return self.values(name, [row])[0]

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        values = self._stored.values(name, rows)
        states = self._states[self._patterns.of[np.asarray(rows, np.int64)]]
        partial = np.flatnonzero(states == PARTIAL).tolist()
        rebuilt = self._rebuilt({rows[position] for position in partial})
        for position in partial:
            values[position] = rebuilt[rows[position]].get(name, values[position])
        return values

    def _rebuilt(self, rows: set[int]) -> dict[int, dict[str, str]]:
        cache = self._cache  # replaced and never changed, since several threads may read it
        missing = sorted(rows - cache.keys())
        if missing:
            if len(cache) + len(missing) > _MAX_CACHED:
                cache = {row: cache[row] for row in rows & cache.keys()}
            cache = cache | dict(zip(missing, self._rebuild(np.array(missing, np.int64)), strict=True))
            self._cache = cache
        return cache
