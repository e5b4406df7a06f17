"""Texts of what is seen in part: told anew from the mentions in reach, as a build without the others tells them."""

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

Told = list[dict[str, str]]  # of each row, its columns
_KEPT = 1024  # rows


def visible_entity_text(files: LabelFiles, in_reach: Flags, rows: IntVector) -> Told:
    """Return name, type and description of entities that are seen in part.

    Args:
        files: of labels.
        in_reach: (n_sets + 1,) by label set.
        rows: ascending.
    """
    mentions = files.mentions
    owners, places = mentions.told(rows, in_reach)
    columns = mentions.columns(places, ("chunk_id", "name", "type", "description"))
    columns["described"] = mentions.numbers[places]
    numbers = [f"{at:08d}" for at in range(len(rows))]  # so that they keep their order
    merged = merge_groups(pa.table(columns), owners, numbers).select(["name", "type", "description"]).to_pylist()
    return [row | {"description": description_of(row["description"], files.max_tokens)} for row in merged]


def visible_relation_text(files: LabelFiles, in_reach: Flags, rows: IntVector) -> Told:
    """Return the description of relations that are seen in part; the arguments are those of `visible_entity_text`."""
    statements = files.statements
    owners, places = statements.told(rows, in_reach)
    columns = statements.columns(places, ("chunk_id", "description"))
    columns["strength"] = statements.numbers[places]
    merged = merge_strengths(pa.table(columns), owners, len(rows), files.max_tokens * CHARS_PER_TOKEN)
    return [{"description": text} for text in merged.descriptions]


class FilteredTextColumns(TextColumns):
    """Columns of text, other than they are written where a row is seen in part."""

    def __init__(
        self,
        written: TextColumns,
        patterns: LabelPatterns,
        states: NDArray[np.uint8],
        tell: Callable[[IntVector], Told],
    ) -> None:
        """Put what is told before what is written.

        Args:
            written: the columns.
            patterns: of their rows.
            states: (n_patterns,) how much of them is seen.
            tell: (rows) → the columns that are told anew, of each.
        """
        self.n_rows = written.n_rows
        self._written = written
        self._patterns = patterns
        self._states = states
        self._tell = tell
        self._kept: dict[int, dict[str, str]] = {}

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        return self.values(name, [row])[0]

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        found = self._written.values(name, rows)
        states = self._states[self._patterns.of[np.asarray(rows, np.int64)]]
        mixed = np.flatnonzero(states == PARTIAL).tolist()
        told = self._told({rows[place] for place in mixed})
        for place in mixed:
            found[place] = told[rows[place]].get(name, found[place])
        return found

    def _told(self, rows: set[int]) -> dict[int, dict[str, str]]:
        missing = sorted(rows - self._kept.keys())
        if missing:
            if len(self._kept) + len(missing) > _KEPT:
                self._kept = {row: self._kept[row] for row in rows & self._kept.keys()}
            self._kept |= dict(zip(missing, self._tell(np.array(missing, np.int64)), strict=True))
        return self._kept
