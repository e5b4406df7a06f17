"""Features of layer-0 entities for resolution: parsed names, neighbours and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from hirag_dist.core.entities.resolution.name_forms import NameForm, name_form
from hirag_dist.core.graph.csr import rows_of


@dataclass(frozen=True, slots=True)
class CollectionFeatures:
    """Features that two entities share: neighbours, chunks, and whether a relation joins them."""

    neighbours: int
    chunks: int
    related: bool

    def __bool__(self) -> bool:
        return self.neighbours > 0 or self.chunks > 0

    def __str__(self) -> str:
        parts = [
            f"{n} shared {what}{'s' if n > 1 else ''}"
            for n, what in ((self.neighbours, "neighbour"), (self.chunks, "chunk"))
            if n
        ]
        return ", ".join(parts) or "nothing shared"


class EntityFeatures:
    """Entities by row, most mentioned first among equals wherever an order matters.

    Attributes:
        names, types, descriptions: as in the table of entities.
        forms: each name as it is compared.
        rank: (n,) place of each row when the most mentioned come first; ties by id.
    """

    def __init__(self, entities: pa.Table, relations: pa.Table) -> None:
        """Read the tables.

        Args:
            entities: ENTITIES of layer 0.
            relations: RELATIONS between them; others are passed over.
        """
        self.names: list[str] = entities["name"].to_pylist()
        self.types: list[str] = entities["type"].to_pylist()
        self.descriptions: list[str] = entities["description"].to_pylist()
        self.forms: list[NameForm] = [name_form(*pair) for pair in zip(self.names, self.types, strict=True)]
        mentions = entities["n_mentions"].to_numpy()
        by_id = np.argsort(np.array(entities["entity_id"].to_pylist(), object), kind="stable")
        order = by_id[np.argsort(-mentions[by_id], kind="stable")]
        self.rank = np.empty(len(order), np.int64)
        self.rank[order] = np.arange(len(order))
        self._chunks: Sequence[frozenset[str]] = [frozenset(ids) for ids in entities["chunk_ids"].to_pylist()]
        self._neighbours: dict[int, set[int]] = {}
        sources = rows_of(relations["source_id"], entities["entity_id"])
        targets = rows_of(relations["target_id"], entities["entity_id"])
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            if source >= 0 and target >= 0:
                self._neighbours.setdefault(source, set()).add(target)
                self._neighbours.setdefault(target, set()).add(source)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """Rows by the text of their form; those of an empty one are left out."""
        found: dict[str, list[int]] = {}
        for row, form in enumerate(self.forms):
            if form.text:
                found.setdefault(form.text, []).append(row)
        return found

    @cached_property
    def by_acronym(self) -> dict[str, list[int]]:
        """Rows whose name is an acronym, by that one, folded."""
        found: dict[str, list[int]] = {}
        for row, form in enumerate(self.forms):
            if form.acronym and len(form.words) == 1:
                found.setdefault(form.acronym.casefold(), []).append(row)
        return found

    def shared(self, one: int, other: int) -> CollectionFeatures:
        """Return the features that two rows share."""
        ours, theirs = self._neighbours.get(one, _NOBODY), self._neighbours.get(other, _NOBODY)
        return CollectionFeatures(len(ours & theirs), len(self._chunks[one] & self._chunks[other]), other in ours)

    def neighbours(self, row: int) -> list[int]:
        """Return the rows that a relation joins to a row, most mentioned first."""
        return self.first(list(self._neighbours.get(row, _NOBODY)))

    def first(self, rows: Sequence[int]) -> list[int]:
        """Return rows with the most mentioned first."""
        return sorted(rows, key=lambda row: self.rank[row])


_NOBODY: set[int] = set()
