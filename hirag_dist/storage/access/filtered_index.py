"""An index as callers with labels see it: the same files, without what they may not know of.

What is kept for a caller is small arrays over patterns (`core.access.labels`), and some texts that were put together
for what is seen in part. Callers who may see the same documents share it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import read_only, visible_relations, visible_scores, visible_weights
from hirag_dist.core.access.labels import HIDDEN, PARTIAL, VISIBLE, AccessRule, Flags, sets_in_reach
from hirag_dist.core.access.visible_components import visible_components
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.core.retrieval.vector_scoring import exact_scores
from hirag_dist.storage import layout
from hirag_dist.storage.access.label_files import LabelFiles, map_labels, read_label_sets
from hirag_dist.storage.access.visible_text import FilteredTextColumns, visible_entity_text, visible_relation_text
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter, CommunityItem, IndexInfo, IntVector

_COUNTED = ("documents", "chunks", "entities", "relations", "communities", "reports")
_CALLERS = 1024  # whose reach is remembered
_VIEWS = 64  # of callers who may see different documents, that are kept


class AccessControlledIndex:
    """Lends an index as each caller may see it."""

    def __init__(self, index: MappedIndex, snapshot: Snapshot, rule: AccessRule = "all") -> None:
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
        # Nothing here refers to this object: in a cycle it would keep the index mapped until the garbage is collected.
        self._found = lru_cache(_CALLERS)(partial(_find, self._sets, rule))
        self._some_unknown = False
        if any(self._sets):  # else everything is in reach, or nothing
            files = map_labels(snapshot)
            self._some_unknown = files.has_set(len(self._sets))
            self._view = lru_cache(_VIEWS)(partial(_view, index, files))

    def view_for(self, reach: Collection[str] | None, wish: Collection[str] = ()) -> MappedIndex | None:
        """Return the index as a caller sees it, None where no document is in reach.

        Where everything is, it is the index that was given.

        Args:
            reach: the labels that the caller holds; None: all.
            wish: labels that every document searched must carry.
        """
        if reach is None and not wish:
            return self._index
        held = None if reach is None else frozenset(reach)
        # A wish is whatever a request holds, and not kept.
        in_reach = _find(self._sets, self._rule, held, wish) if wish else self._found(held)
        if 1 not in in_reach and (wish or in_reach):
            return None
        return self._view(in_reach) if 0 in in_reach or self._some_unknown else self._index

    def any_view(self) -> FilteredIndex | None:
        """Return a view such as callers get, None where all callers see everything or nothing."""
        if len(self._sets) < 2 and not self._some_unknown:
            return None
        return self._view(bytes([1, *[0] * (len(self._sets) - 1)]))


def _find(
    sets: Sequence[tuple[str, ...]], rule: AccessRule, reach: frozenset[str] | None, wish: Collection[str] = ()
) -> bytes:
    """Return for each label set a byte, 1 where it is in reach."""
    return sets_in_reach(sets, reach, wish, rule).tobytes()


def _view(index: MappedIndex, files: LabelFiles, in_reach: bytes) -> FilteredIndex:
    unknown = np.zeros(1, np.bool_)  # what comes from no known document is in nobody's reach
    return FilteredIndex(index, files, np.concatenate([np.frombuffer(in_reach, np.bool_), unknown]))


def empty_index_info(whole: IndexInfo) -> IndexInfo:
    """Return what a caller may know of an index of which nothing is in reach."""
    return replace(whole, counts=dict.fromkeys(_COUNTED, 0), layers=(), communities_by_level={})


class FilteredIndex(MappedIndex):
    """An index as one caller may see it. Rows are those of the whole one; those that are hidden are never asked for."""

    def __init__(self, whole: MappedIndex, files: LabelFiles, in_reach: Flags) -> None:
        """Make a view.

        Args:
            whole: what there is.
            files: its files of labels.
            in_reach: (n_sets + 1,) by label set; the last stands for no known document.
        """
        super().__init__(whole.files)
        self.access: AccessFilter = read_only(
            AccessFilter(
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
        # Nothing of the view is referred to by what it holds, as above.
        tell = partial(visible_entity_text, files, in_reach)
        self._entities = FilteredTextColumns(whole._entities, files.entities, self.access.entity_states, tell)
        tell = partial(visible_relation_text, files, in_reach)
        self._relations = FilteredTextColumns(whole._relations, files.relations, self.access.relation_states, tell)
        self.visible_chunks: Flags = in_reach[files.chunk_sets]
        # A chunk is of one document, so its label set is its pattern, and it is seen whole or not at all.
        by_set = np.where(in_reach, VISIBLE, HIDDEN).astype(np.uint8)
        self.chunk_access = read_only(self.access._replace(entity_patterns=files.chunk_sets, entity_states=by_set))
        self._reported = files.communities.states(in_reach)[files.communities.of] == VISIBLE
        own = whole.communities
        self.communities = replace(own, ratings=np.where(self._reported, own.ratings, 0.0))
        self.components = None
        self._connecting = threading.Lock()

    def connect(self) -> NDArray[np.int32]:
        """Return `components`, found once. It reads the whole graph, and lets other threads work meanwhile."""
        with self._connecting:
            if self.components is None:
                self.components = visible_components(self.graph, self.access)
            return self.components

    def similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return how near entities are to a question, by what may be seen of them."""
        return visible_scores(self.access, self.vectors, rows, query, exact_scores)

    def is_rebuilt(self, level: str, row: int) -> bool:
        """Whether a record is of an entity or relation seen in part, or names an entity that is."""
        access = self.access
        entities = [row] if level == "local" else self.ends[row].tolist() if level == "bridge" else []
        if any(access.entity_states[access.entity_patterns[entity]] == PARTIAL for entity in entities):
            return True
        return level == "bridge" and bool(access.relation_states[access.relation_patterns[row]] == PARTIAL)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations, by what may be seen of them."""
        return visible_weights(self.access, self.weights, rows)

    def visible_relations(self, rows: IntVector) -> IntVector:
        """Return those relations that may be seen."""
        return rows[visible_relations(self.access, self.ends[rows], rows)]

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where not all that it was written from may be seen."""
        return super().community(ranked) if self._reported[ranked.community] else None

    def reported(self) -> Flags:
        """Return, for each community, whether it has a report that may be seen."""
        found: Flags = super().reported() & self._reported
        return found

    def fully_visible(self) -> Flags:
        """Return, for each community, whether all that it was made from may be seen."""
        whole: Flags = self._reported
        return whole

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
        access = self.access
        entities = access.entity_states[access.entity_patterns] != HIDDEN
        relations = visible_relations(access, self.ends, np.arange(len(self.ends)))
        chunks = np.flatnonzero(self.visible_chunks)
        documents = np.unique(self.chunk_documents[chunks])
        layers = np.bincount(self.layers[entities]).tolist()
        levels = np.bincount(self.communities.levels[self._reported]).tolist()
        reports = self._reported & (self.files.report_rows >= 0)
        seen = documents >= 0, chunks >= 0, entities, relations, self._reported, reports
        counts = {name: int(np.sum(rows)) for name, rows in zip(_COUNTED, seen, strict=True)}
        if self.files.claims is not None:
            counts[layout.CLAIMS] = self.files.claims.n_visible(self.visible_chunks)
        return counts, layers, levels
