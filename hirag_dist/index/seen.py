"""An index as callers with labels see it: the same files, without what they may not know of.

What is kept for a caller is small arrays over patterns (`core.access`), and some texts that were put together for what
is seen in part. Callers who may see the same documents share it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, MIXED, WHOLE, Flags, LabelRule, description_of, sets_in_reach
from hirag_dist.core.admission import admitted_relations, read_only, seen_scores, seen_weights
from hirag_dist.core.components import seen_components
from hirag_dist.core.merging import CHARS_PER_TOKEN, merge_groups, merge_strengths
from hirag_dist.core.retrieval import RankedCommunity
from hirag_dist.core.scoring import exact_scores
from hirag_dist.index.label_files import LabelFiles, labels_of_none, map_labels, read_label_sets
from hirag_dist.index.loaded import LoadedIndex
from hirag_dist.index.reader import Snapshot
from hirag_dist.index.texts import TextColumns
from hirag_dist.types import Admission, CommunityItem, IndexInfo, IntVector

_CALLERS = 1024  # whose reach is remembered
_VIEWS = 64  # of callers who may see different documents, that are kept
_TEXTS = 1024  # put together, that a view keeps


class LabelledIndex:
    """Lends an index as each caller may see it."""

    def __init__(self, index: LoadedIndex, snapshot: Snapshot, rule: LabelRule = "all") -> None:
        """Map the files of labels.

        Args:
            index: what there is.
            snapshot: where it is from.
            rule: a document is in reach of whoever holds all of its labels, or any.

        Raises:
            SnapshotCorrupt: a file cannot be read.
        """
        self._index = index
        self._rule = rule
        self._sets = read_label_sets(snapshot)
        files = map_labels(snapshot) if any(self._sets) else None
        # Nothing here refers to this object: in a cycle it would keep the index mapped until the garbage is collected.
        self._found = lru_cache(_CALLERS)(partial(_find, self._sets, rule))
        self._view = lru_cache(_VIEWS)(partial(_view, index, files))

    def seen_by(self, reach: Collection[str] | None, wish: Collection[str] = ()) -> LoadedIndex:
        """Return the index as a caller sees it; where everything is in reach it is the one that was given.

        Args:
            reach: the labels that the caller holds; None: all.
            wish: labels that every document searched must carry.
        """
        if reach is None and not wish:
            return self._index
        held = None if reach is None else frozenset(reach)
        # A wish is whatever a request holds, and not kept.
        in_reach = _find(self._sets, self._rule, held, wish) if wish else self._found(held)
        return self._view(in_reach) if 0 in in_reach else self._index

    def seen_by_nobody(self) -> SeenIndex:
        """Return the index as somebody sees it who may see nothing: with arrays of the types that all views have."""
        return self._view(bytes(len(self._sets)))


def _find(
    sets: Sequence[tuple[str, ...]], rule: LabelRule, reach: frozenset[str] | None, wish: Collection[str] = ()
) -> bytes:
    """Return for each label set a byte, 1 where it is in reach."""
    return sets_in_reach(sets, reach, wish, rule).tobytes()


def _view(index: LoadedIndex, files: LabelFiles | None, in_reach: bytes) -> SeenIndex:
    files = files or labels_of_none(index)  # a wish for labels where there are none
    unknown = np.zeros(1, np.bool_)  # what comes from no known document is in nobody's reach
    return SeenIndex(index, files, np.concatenate([np.frombuffer(in_reach, np.bool_), unknown]))


class SeenIndex(LoadedIndex):
    """An index as one caller may see it. Rows are those of the whole one; those that are hidden are never asked for."""

    def __init__(self, whole: LoadedIndex, files: LabelFiles, in_reach: Flags) -> None:
        """Make a view.

        Args:
            whole: what there is.
            files: its files of labels.
            in_reach: (n_sets + 1,) by label set; the last stands for no known document.
        """
        self.__dict__.update(whole.__dict__)
        self._files = files
        self.admission: Admission = read_only(
            Admission(
                in_reach,
                files.entities.of,
                files.entities.states(in_reach),
                files.relations.of,
                files.relations.states(in_reach),
                files.part_entities,
                files.part_sets,
                files.part_vectors,
                files.statements.rows,
                files.statements.indptr,
                files.statements.sets,
                files.statements.numbers,
            )
        )
        self._entities = _Retold(whole._entities, self._is_mixed_entity, self._tell_entities)
        self._relations = _Retold(whole._relations, self._is_mixed_relation, self._tell_relations)
        self.seen_chunks: Flags = in_reach[files.chunk_sets]
        self._reported = files.communities.states(in_reach)[files.communities.of] == WHOLE
        own = whole.communities
        self.communities = replace(own, ratings=np.where(self._reported, own.ratings, 0.0))
        self.components = None
        self._connecting = threading.Lock()

    def connect(self) -> NDArray[np.int32]:
        """Return `components`, found once. It reads the whole graph, and lets other threads work meanwhile."""
        with self._connecting:
            if self.components is None:
                self.components = seen_components(self.graph, self.admission)
            return self.components

    def similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how near entities are to a question, by what may be seen of them."""
        return seen_scores(self.admission, self.vectors, rows, query, exact_scores)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations, by what may be seen of them."""
        return seen_weights(self.admission, self.weights, rows)

    def known_relations(self, rows: IntVector) -> IntVector:
        """Return those relations that may be seen."""
        return rows[admitted_relations(self.admission, self.ends[rows], rows)]

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where not all that it was written from may be seen."""
        return super().community(ranked) if self._reported[ranked.community] else None

    def relation_chunks(self, row: int) -> list[int]:
        """Return the chunks in reach that state a relation."""
        return [chunk for chunk in super().relation_chunks(row) if self.seen_chunks[chunk]]

    def info(self, whole: IndexInfo) -> IndexInfo:
        """Return what a caller may know of an index: what there is of each kind that may be seen.

        Args:
            whole: the same of all.
        """
        counts, layers, levels = self._counts
        return replace(
            whole,
            counts=dict(counts),
            layers=tuple({"layer": layer, "n_entities": n} for layer, n in enumerate(layers)),
            communities_by_level={level: n for level, n in enumerate(levels) if n},
        )

    @cached_property
    def _counts(self) -> tuple[dict[str, int], list[int], list[int]]:
        """Rows of each table that may be seen, entities by layer, and communities wholly in reach by level."""
        admission = self.admission
        entities = admission.entity_states[admission.entity_patterns] != HIDDEN
        relations = admitted_relations(admission, self.ends, np.arange(len(self.ends)))
        chunks = np.flatnonzero(self.seen_chunks)
        documents = np.unique(self.chunk_documents[chunks])
        layers = np.bincount(self.layers[entities]).tolist()
        levels = np.bincount(self.communities.levels[self._reported]).tolist()
        counts = {
            "documents": int(np.sum(documents >= 0)),
            "chunks": len(chunks),
            "entities": int(np.sum(entities)),
            "relations": int(np.sum(relations)),
            "communities": int(np.sum(self._reported)),
            "reports": int(np.sum(self._reported & (self._report_rows >= 0))),
        }
        return counts, layers, levels

    def _is_mixed_entity(self, rows: IntVector) -> Flags:
        states: Flags = self.admission.entity_states[self.admission.entity_patterns[rows]] == MIXED
        return states

    def _is_mixed_relation(self, rows: IntVector) -> Flags:
        states: Flags = self.admission.relation_states[self.admission.relation_patterns[rows]] == MIXED
        return states

    def _tell_entities(self, rows: IntVector) -> list[dict[str, str]]:
        """Return name, type and description of entities by their mentions in reach."""
        mentions = self._files.mentions
        owners, places = mentions.told(rows, self.admission.sets)
        columns = mentions.columns(places, ("chunk_id", "name", "type", "description"))
        columns["described"] = mentions.numbers[places]
        numbers = [f"{at:08d}" for at in range(len(rows))]  # so that they keep their order
        merged = merge_groups(pa.table(columns), owners, numbers).select(["name", "type", "description"]).to_pylist()
        limit = self._files.max_tokens
        return [row | {"description": description_of(row["description"], limit)} for row in merged]

    def _tell_relations(self, rows: IntVector) -> list[dict[str, str]]:
        """Return the description of relations by their statements in reach."""
        statements = self._files.statements
        owners, places = statements.told(rows, self.admission.sets)
        columns = statements.columns(places, ("chunk_id", "description"))
        columns["strength"] = statements.numbers[places]
        limit = self._files.max_tokens * CHARS_PER_TOKEN
        merged = merge_strengths(pa.table(columns), owners, len(rows), limit)
        return [{"description": text} for text in merged.descriptions]


class _Retold(TextColumns):
    """Columns of text, other than they are written where a row is seen in part."""

    def __init__(
        self,
        written: TextColumns,
        is_mixed: Callable[[IntVector], Flags],
        tell: Callable[[IntVector], list[dict[str, str]]],
    ) -> None:
        """Put what is told before what is written.

        Args:
            written: the columns.
            is_mixed: (rows) → which are seen in part.
            tell: (rows) → the columns that are told anew, of each.
        """
        self.n_rows = written.n_rows
        self._written = written
        self._is_mixed = is_mixed
        self._tell = tell
        self._kept: dict[int, dict[str, str]] = {}

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        return self.values(name, [row])[0]

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        found = self._written.values(name, rows)
        at = np.asarray(rows, np.int64)
        mixed = np.flatnonzero(self._is_mixed(at)).tolist()
        told = self._told({rows[place] for place in mixed})
        for place in mixed:
            found[place] = told[rows[place]].get(name, found[place])
        return found

    def _told(self, rows: set[int]) -> dict[int, dict[str, str]]:
        missing = sorted(rows - self._kept.keys())
        if missing:
            if len(self._kept) + len(missing) > _TEXTS:
                self._kept = {row: self._kept[row] for row in rows & self._kept.keys()}
            self._kept |= dict(zip(missing, self._tell(np.array(missing, np.int64)), strict=True))
        return self._kept
