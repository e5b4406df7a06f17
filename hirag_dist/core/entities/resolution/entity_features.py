"""Features of layer-0 entities for resolution: parsed names, words of descriptions, neighbours and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa

from hirag_dist.core.entities.resolution.name_forms import NameForm, fold, name_form, tokens_of
from hirag_dist.core.entities.resolution.word_lists import SMALL_WORDS
from hirag_dist.core.graph.csr import rows_of


class EntityFeatures:
    """Entities by row, most mentioned first among equals wherever an order matters.

    Attributes:
        names, types, descriptions: as in the table of entities; a description has one line or more.
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
        self._chunks = entities["chunk_ids"].combine_chunks()
        ends = [rows_of(relations[name], entities["entity_id"]) for name in ("source_id", "target_id")]
        inside = (ends[0] >= 0) & (ends[1] >= 0)
        source, target = ends[0][inside], ends[1][inside]
        sources, targets = np.concatenate([source, target]), np.concatenate([target, source])
        by_source = np.argsort(sources, kind="stable")
        self._targets = targets[by_source]
        self._starts = np.searchsorted(sources[by_source], np.arange(len(self.names) + 1))
        self._words = lru_cache(100_000)(self._read_words)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def by_text(self) -> dict[str, list[int]]:
        """Rows by the text of their form, most mentioned first; those of an empty one are left out."""
        found: dict[str, list[int]] = {}
        for row in np.argsort(self.rank).tolist():
            if self.forms[row].text:
                found.setdefault(self.forms[row].text, []).append(row)
        return found

    @cached_property
    def by_acronym(self) -> dict[str, list[int]]:
        """Rows whose name is an acronym, by that one, folded."""
        found: dict[str, list[int]] = {}
        for row, form in enumerate(self.forms):
            if form.acronym and len(form.words) == 1:
                found.setdefault(form.acronym.casefold(), []).append(row)
        return found

    def neighbours(self, row: int) -> set[int]:
        """Return the rows that a relation joins to a row."""
        return set(self._targets[self._starts[row] : self._starts[row + 1]].tolist())

    def chunks(self, row: int) -> set[str]:
        """Return the chunks that mention a row."""
        return set(self._chunks[row].as_py())

    def described_by(self, row: int) -> frozenset[str]:
        """Return the meaningful words of a row's description, without those of its name."""
        return self._words(row)

    def _read_words(self, row: int) -> frozenset[str]:
        words = name_form(self.descriptions[row].replace("\n", " "), "text").words
        return frozenset(words) - SMALL_WORDS - set(self.forms[row].words)

    def lines(self, row: int) -> dict[str, int]:
        """Return the lines of a row's description, folded, with the meaningful words in each; of three at least."""
        found = {}
        for line in self.descriptions[row].split("\n"):
            words = tokens_of(fold(line), "")
            n_meaningful = len(frozenset(words) - SMALL_WORDS)
            if n_meaningful >= _FEW:
                found[" ".join(words)] = n_meaningful
        return found

    def first(self, rows: Sequence[int]) -> list[int]:
        """Return rows with the most mentioned first."""
        return sorted(rows, key=lambda row: self.rank[row])


_FEW = 3  # meaningful words of a description that says something
