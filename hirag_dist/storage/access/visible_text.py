"""Texts of partially visible rows, rebuilt from the visible mentions as a build without the other documents would."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from hirag_dist.core.access.labels import Flags, description_of
from hirag_dist.core.entities.mention_texts import (
    EntityMention,
    RelationMention,
    entity_texts,
    relation_description,
)
from hirag_dist.core.entities.merging import CHARS_PER_TOKEN
from hirag_dist.storage.access.label_files import Mentions
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.types import IntVector

TextRows = list[dict[str, str]]  # column → text, of each row
_MAX_CACHED = 1024  # rows


def visible_entity_text(mentions: Mentions, in_reach: Flags, max_tokens: int, rows: IntVector) -> TextRows:
    """Return name, type and description of partially visible entities.

    Args:
        mentions: of entities.
        in_reach: by label set, or by chunk, as of `mentions.sets`; the last one is that of unknown documents.
        max_tokens: of a description.
        rows: ascending.
    """
    found: TextRows = []
    for visible in mentions.by_row(rows, in_reach, ("chunk_id", "name", "type", "description")):
        name, kind, description = entity_texts(map(EntityMention._make, visible))
        found.append({"name": name, "type": kind, "description": description_of(description, max_tokens)})
    return found


def visible_relation_text(statements: Mentions, in_reach: Flags, max_tokens: int, rows: IntVector) -> TextRows:
    """Return the description of partially visible relations; the arguments are those of `visible_entity_text`."""
    groups = statements.by_row(rows, in_reach, ("chunk_id", "description"))
    max_chars = max_tokens * CHARS_PER_TOKEN
    return [{"description": relation_description(map(RelationMention._make, visible), max_chars)} for visible in groups]


class FilteredTextColumns(TextColumns):
    """Columns of text in which the values of partially visible rows are replaced."""

    def __init__(
        self,
        stored: TextColumns,
        is_partial: Callable[[IntVector], Flags],
        rebuild: Callable[[IntVector], TextRows],
    ) -> None:
        """Replace values of stored columns.

        Args:
            is_partial: rows → whether each is partially visible.
            rebuild: rows → the replaced columns of each.
        """
        self.n_rows = stored.n_rows
        self._stored = stored
        self._is_partial = is_partial
        self._rebuild = rebuild
        self._cache: dict[int, dict[str, str]] = {}

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        return self.values(name, [row])[0]

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        values = self._stored.values(name, rows)
        partial = np.flatnonzero(self._is_partial(np.asarray(rows, np.int64))).tolist()
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
