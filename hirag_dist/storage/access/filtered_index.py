"""Access control: views of an index by labels, which share its mapped files and hide what a caller may not see.

A view has small arrays over label patterns (`core.access.labels`) and a cache of texts of partially visible rows.
Callers who may see the same documents share a view.
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
_MAX_CALLERS = 1024  # combinations of labels whose visible label sets are cached
_MAX_VIEWS = 64  # cached


class AccessControlledIndex:
    """Views of an index, by the labels that a caller holds."""

    def __init__(self, index: MappedIndex, snapshot: Snapshot, rule: AccessRule = "all") -> None:
        """Map the files of labels.

        Args:
            index: unfiltered.
            snapshot: of the index.
            rule: whether a caller needs all labels of a document to see it, or any.

        Raises:
            SnapshotCorrupt: a file cannot be read.
        """
        self._index = index
        self._rule = rule
        self._sets = read_label_sets(snapshot)
        # No reference to `self`: a cycle would keep the index mapped until the garbage is collected.
        self._visible_sets = lru_cache(_MAX_CALLERS)(partial(_visible_sets, self._sets, rule))
        self._some_unknown = False
        if any(self._sets):  # otherwise every caller sees everything, or nothing
            files = map_labels(snapshot)
            self._some_unknown = files.has_set(len(self._sets))
            self._view = lru_cache(_MAX_VIEWS)(partial(_view, index, files))

    def view_for(self, reach: Collection[str] | None, required: Collection[str] = ()) -> MappedIndex | None:
        """Return the index as a caller sees it, None where no document is visible.

        Where all documents are, it is the unfiltered index.

        Args:
            reach: the labels that the caller holds; None: all.
            required: labels that every document searched must carry.
        """
        if reach is None and not required:
            return self._index
        labels = None if reach is None else frozenset(reach)
        # Required labels are arbitrary strings of a request, so they are not cached.
        in_reach = _visible_sets(self._sets, self._rule, labels, required) if required else self._visible_sets(labels)
        if 1 not in in_reach and (required or in_reach):
            return None
        return self._view(in_reach) if 0 in in_reach or self._some_unknown else self._index

    def any_view(self) -> FilteredIndex | None:
        """Return an example of a filtered view, None where all callers see everything or nothing."""
        if len(self._sets) < 2 and not self._some_unknown:
            return None
        return self._view(bytes([1, *[0] * (len(self._sets) - 1)]))


def _visible_sets(
    sets: Sequence[tuple[str, ...]], rule: AccessRule, reach: frozenset[str] | None, required: Collection[str] = ()
) -> bytes:
    """Return a byte for each label set, 1 where the caller sees its documents."""
    return sets_in_reach(sets, reach, required, rule).tobytes()


def _view(index: MappedIndex, files: LabelFiles, in_reach: bytes) -> FilteredIndex:
    unknown = np.zeros(1, np.bool_)  # rows of unknown documents are visible to no caller with labels
    return FilteredIndex(index, files, np.concatenate([np.frombuffer(in_reach, np.bool_), unknown]))


def empty_index_info(whole: IndexInfo) -> IndexInfo:
    """Return the statistics for a caller to whom no document is visible."""
    return replace(whole, counts=dict.fromkeys(_COUNTED, 0), layers=(), communities_by_level={})


class FilteredIndex(MappedIndex):
    """An index as one caller may see it. Rows are numbered as in the unfiltered one; hidden rows are never read."""

    def __init__(self, whole: MappedIndex, files: LabelFiles, in_reach: Flags) -> None:
        """Make a view.

        Args:
            whole: the unfiltered index.
            files: its label files.
            in_reach: (n_sets + 1,) whether the documents of a label set are visible; the last is that of unknown ones.
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
        # No reference to `self`, for the same reason as in `AccessControlledIndex`.
        rebuild = partial(visible_entity_text, files, in_reach)
        self._entities = FilteredTextColumns(whole._entities, files.entities, self.access.entity_states, rebuild)
        rebuild = partial(visible_relation_text, files, in_reach)
        self._relations = FilteredTextColumns(whole._relations, files.relations, self.access.relation_states, rebuild)
        self.visible_chunks: Flags = in_reach[files.chunk_sets]
        # A chunk is of one document, so its label set is its pattern, and it is never partially visible.
        by_set = np.where(in_reach, VISIBLE, HIDDEN).astype(np.uint8)
        self.chunk_access = read_only(self.access._replace(entity_patterns=files.chunk_sets, entity_states=by_set))
        self._reported = files.communities.states(in_reach)[files.communities.of] == VISIBLE
        ratings = np.where(self._reported, whole.communities.ratings, 0.0)
        self.communities = replace(whole.communities, ratings=ratings)
        self.components = None
        self._connecting = threading.Lock()

    def connect(self) -> NDArray[np.int32]:
        """Return `components`, computed once. It reads the whole graph and releases the interpreter lock."""
        with self._connecting:
            if self.components is None:
                self.components = visible_components(self.graph, self.access)
            return self.components

    def similarities(self, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the similarity of entities to a question, by their visible parts."""
        return visible_scores(self.access, self.vectors, rows, query, exact_scores)

    def is_rebuilt(self, level: str, row: int) -> bool:
        """Return whether a record is of a partially visible entity or relation, or names such an entity."""
        access = self.access
        entities = [row] if level == "local" else self.ends[row].tolist() if level == "bridge" else []
        if any(access.entity_states[access.entity_patterns[entity]] == PARTIAL for entity in entities):
            return True
        return level == "bridge" and bool(access.relation_states[access.relation_patterns[row]] == PARTIAL)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations, by their visible statements."""
        return visible_weights(self.access, self.weights, rows)

    def visible_relations(self, rows: IntVector) -> IntVector:
        """Return the relations that are visible."""
        return rows[visible_relations(self.access, self.ends[rows], rows)]

    def community(self, ranked: RankedCommunity) -> CommunityItem | None:
        """Return a community with its report, None where not all its sources are visible."""
        return super().community(ranked) if self._reported[ranked.community] else None

    def reported(self) -> Flags:
        """Return, for each community, whether it has a visible report."""
        reported: Flags = super().reported() & self._reported
        return reported

    def fully_visible(self) -> Flags:
        """Return, for each community, whether all its sources are visible."""
        whole: Flags = self._reported
        return whole

    def info(self, whole: IndexInfo) -> IndexInfo:
        """Return the statistics of the visible rows.

        Args:
            whole: the statistics of the unfiltered index.
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
        """Visible rows of each table, visible entities by layer, and fully visible communities by level."""
        access = self.access
        entities = access.entity_states[access.entity_patterns] != HIDDEN
        relations = visible_relations(access, self.ends, np.arange(len(self.ends)))
        chunks = np.flatnonzero(self.visible_chunks)
        documents = np.unique(self.chunk_documents[chunks])
        layers = np.bincount(self.layers[entities]).tolist()
        levels = np.bincount(self.communities.levels[self._reported]).tolist()
        reports = self._reported & (self.files.report_rows >= 0)
        visible = documents >= 0, chunks >= 0, entities, relations, self._reported, reports
        counts = {name: int(np.sum(rows)) for name, rows in zip(_COUNTED, visible, strict=True)}
        if self.files.claims is not None:
            counts[layout.CLAIMS] = self.files.claims.n_visible(self.visible_chunks)
        return counts, layers, levels
