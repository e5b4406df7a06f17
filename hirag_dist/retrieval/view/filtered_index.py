"""Views of an index by labels and filters, which share its mapped files and hide what a caller may not or will not see.

A view by labels has small arrays over label patterns (`core.access.labels`), one by a filter has arrays over rows
(`core.metadata.visibility`). Each caches texts of partially visible rows. Callers who may see the same documents
share a view.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import (
    HIDDEN,
    AccessRule,
    Flags,
    sets_in_reach,
    visible_components,
    visible_relations,
    visible_scores,
    visible_weights,
)
from hirag_dist.core.graph.pagerank import VisibleEdges
from hirag_dist.core.metadata.columns import facets, matching_documents
from hirag_dist.core.metadata.fields import Expression
from hirag_dist.core.retrieval.levels import exact_scores
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.retrieval.view.visibility import (
    FilteredRows,
    FilteredTextColumns,
    Visibility,
    full_visibility,
    label_visibility,
)
from hirag_dist.storage import layout
from hirag_dist.storage.label_files import LabelFiles, description_tokens, read_label_sets
from hirag_dist.storage.metadata_files import MetadataFiles
from hirag_dist.storage.snapshot.manifest import MISSING_REPORTS_COUNT
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import AccessFilter, Facet, IndexInfo, IntVector

_COUNTED = ("documents", "chunks", "entities", "relations", "communities", "reports")
_MAX_CALLERS = 1024  # combinations of labels whose visible label sets are cached
_MAX_VIEWS = 64  # cached
_MIN_VIEWS = 4  # by filters, however large the index
_MAX_FILTERED_BYTES = 256 << 20  # of cached views by filters
_MIN_ROWS_APART = 100_000  # of entities and relations, from which on a view by a filter is made in a thread
_ViewKey = tuple[MappedIndex, Expression]


class FilteredIndex(MappedIndex):
    """An index as one caller may see it. Rows are numbered as in the unfiltered one; hidden rows are never read."""

    def __init__(self, whole: MappedIndex, visibility: Visibility) -> None:
        """Make a view of an unfiltered index."""
        super().__init__(whole.files)
        self.access: AccessFilter = visibility.access
        self.is_by_row = visibility.is_by_row
        # No reference to `self`, for the same reason as in `AccessControlledIndex`.
        self.visibility = visibility
        self._entities = FilteredTextColumns(whole._entities, visibility.partial_entities, visibility.entity_texts)
        self._relations = FilteredTextColumns(whole._relations, visibility.partial_relations, visibility.relation_texts)
        self.visible_chunks: Flags = visibility.chunks
        self.chunk_access = visibility.chunk_access
        self.visible_communities: Flags = visibility.communities
        ratings = np.where(self.visible_communities, whole.communities.ratings, 0.0)
        self.communities = replace(whole.communities, ratings=ratings)
        self.components = None
        self.visible_edges = VisibleEdges.unknown(self.walk_graph)
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

    def rebuilt(self, level: str, rows: IntVector) -> Flags:
        """Return whether records are of partially visible entities or relations, or name such an entity: (n,)."""
        if level == "local":
            return self.visibility.partial_entities(rows)
        if level == "bridge":
            ends = self.ends[rows].astype(np.int64)
            named: Flags = self.visibility.partial_entities(ends[:, 0]) | self.visibility.partial_entities(ends[:, 1])
            return named | self.visibility.partial_relations(rows)
        return super().rebuilt(level, rows)

    def relation_weights(self, rows: IntVector) -> NDArray[np.float64]:
        """Return the weights of relations, by their visible statements."""
        return visible_weights(self.access, self.weights, rows)

    def visible_relations(self, rows: IntVector) -> IntVector:
        """Return the relations that are visible."""
        return rows[visible_relations(self.access, self.ends[rows], rows)]

    def info(self, whole: IndexInfo) -> IndexInfo:
        """Return the statistics of the visible rows, given those of the unfiltered index."""
        counts, layers, levels = self._counts
        if MISSING_REPORTS_COUNT in whole.counts:
            counts = counts | {MISSING_REPORTS_COUNT: counts["communities"] - counts["reports"]}
        found: tuple[Facet, ...] = ()
        if self.files.metadata is not None:
            documents = np.zeros(self.files.documents.n_rows + 1, np.bool_)  # those that have a visible chunk
            documents[self.chunk_documents[self.visible_chunks]] = True  # −1, an unknown one, is the last
            found = facets(self.files.metadata.columns.values(), documents[:-1])
        return replace(
            whole,
            facets=found,
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
        levels = np.bincount(self.communities.levels[self.visible_communities]).tolist()
        visible = documents >= 0, chunks >= 0, entities, relations, self.visible_communities, self.reported()
        counts = {name: int(np.sum(rows)) for name, rows in zip(_COUNTED, visible, strict=True)}
        if self.files.claims is not None:
            counts[layout.CLAIMS] = self.files.claims.n_visible(self.visible_chunks)
        return counts, layers, levels


class AccessControlledIndex:
    """Views of an index, by the labels that a caller holds and by filters of documents."""

    def __init__(self, index: MappedIndex, snapshot: Snapshot, rule: AccessRule = "all") -> None:
        """Map the files of labels and metadata of an unfiltered index.

        Args:
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
            files = LabelFiles(snapshot)
            sets = (files.entities.sets, files.relations.sets, files.communities.sets, files.chunk_sets)
            self._some_unknown = any((each == len(self._sets)).any() for each in sets)  # a set behind the known ones
            self._view = lru_cache(_MAX_VIEWS)(partial(_view, index, files))
        metadata = index.files.metadata
        self._filters = (
            None if metadata is None else FilteredViews(index, metadata, description_tokens(snapshot.manifest))
        )

    def view_for(
        self,
        reach: Collection[str] | None,
        required: Collection[str] = (),
        expression: Expression | None = None,
    ) -> MappedIndex | None:
        """Return the index as a caller sees it, None where no document is visible.

        Where all documents are, it is the unfiltered index. The first view of an expression takes some ten milliseconds
        for a million entities.

        Args:
            reach: the labels that the caller holds; None: all.
            required: labels that every document searched must carry.
            expression: that every document searched must meet; of an index with metadata.
        """
        view = self._labelled_view(reach, required)
        if view is None or expression is None:
            return view
        assert self._filters is not None  # the expression was checked against its fields
        return self._filters.view(view, expression)

    def is_cached(self, reach: Collection[str] | None, required: Collection[str], expression: Expression) -> bool:
        """Return whether the view of an expression needs no computation over all rows."""
        view = self._labelled_view(reach, required)
        return view is None or self._filters is None or self._filters.is_cached(view, expression)

    def any_view(self, *, always: bool = False) -> FilteredIndex | None:
        """Return an example of a filtered view; unless `always`, None where all callers see everything or nothing."""
        by_filter = None if self._filters is None else self._filters.any_view()  # compiles what filters need
        if len(self._sets) < 2 and not self._some_unknown:
            if by_filter is None and always:
                return FilteredIndex(self._index, full_visibility(self._index))
            return by_filter
        return self._view(bytes([1, *[0] * (len(self._sets) - 1)]))

    def _labelled_view(self, reach: Collection[str] | None, required: Collection[str]) -> MappedIndex | None:
        if reach is None and not required:
            return self._index
        labels = None if reach is None else frozenset(reach)
        # Required labels are arbitrary strings of a request, so they are not cached.
        in_reach = _visible_sets(self._sets, self._rule, labels, required) if required else self._visible_sets(labels)
        if 1 not in in_reach and (required or in_reach):
            return None
        return self._view(in_reach) if 0 in in_reach or self._some_unknown else self._index


def _visible_sets(
    sets: Sequence[tuple[str, ...]], rule: AccessRule, reach: frozenset[str] | None, required: Collection[str] = ()
) -> bytes:
    """Return a byte for each label set, 1 where the caller sees its documents."""
    return sets_in_reach(sets, reach, required, rule).tobytes()


def _view(index: MappedIndex, files: LabelFiles, in_reach: bytes) -> FilteredIndex:
    unknown = np.zeros(1, np.bool_)  # rows of unknown documents are visible to no caller with labels
    reached = np.concatenate([np.frombuffer(in_reach, np.bool_), unknown])
    return FilteredIndex(index, label_visibility(files, reached))


class FilteredViews:
    """Views by filter expressions, of the index and of its views by labels; a bounded number of them is cached."""

    def __init__(self, index: MappedIndex, metadata: MetadataFiles, max_tokens: int) -> None:
        """Prepare views of an unfiltered index."""
        self._index = index
        self._columns = metadata.columns
        self._rows = FilteredRows(index, metadata, max_tokens)
        self._max_views = max(min(_MAX_FILTERED_BYTES // self._rows.view_bytes, _MAX_VIEWS), _MIN_VIEWS)
        self._views: OrderedDict[_ViewKey, MappedIndex | None] = OrderedDict()
        self._lock = threading.Lock()

    def view(self, view: MappedIndex, expression: Expression) -> MappedIndex | None:
        """Return the part of a view that meets an expression, None where no document does.

        Args:
            view: the unfiltered index, or what a caller with labels sees of it.
        """
        key = view, expression
        with self._lock:
            if key in self._views:
                self._views.move_to_end(key)
                return self._views[key]
        made: MappedIndex | None = view
        documents = matching_documents(expression, self._columns)
        if not documents.all():
            by_labels = view.visibility if isinstance(view, FilteredIndex) else None
            visibility = self._rows.visibility(documents, by_labels)
            made = FilteredIndex(self._index, visibility) if visibility.chunks.any() else None
        with self._lock:
            self._views[key] = made
            while len(self._views) > self._max_views:
                self._views.popitem(last=False)
        return made

    def is_cached(self, view: MappedIndex, expression: Expression) -> bool:
        """Return whether a view of an expression is there, or takes no time."""
        small = len(self._index.ends) + len(self._index.layers) < _MIN_ROWS_APART
        with self._lock:
            return small or (view, expression) in self._views

    def any_view(self) -> FilteredIndex:
        """Return an example of a view."""
        documents = np.zeros(self._index.files.documents.n_rows, np.bool_)
        return FilteredIndex(self._index, self._rows.visibility(documents, None))


def empty_index_info(whole: IndexInfo) -> IndexInfo:
    """Return the statistics for a caller to whom no document is visible."""
    fields = tuple(Facet(facet.name, facet.type, facet.list) for facet in whole.facets)
    return replace(whole, counts=dict.fromkeys(_COUNTED, 0), layers=(), communities_by_level={}, facets=fields)
