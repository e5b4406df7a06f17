"""Visibility of the rows of an index, by a set of documents: those that meet a filter expression.

The state of every row is computed from its chunks; arrays of numbers 0, 1, 2, … take the place of label patterns, so
that searches and paths under a filter are those under labels. A filter selects what is relevant, labels decide what may
be seen: the vector of an entity some of whose mentions are left out is the stored one, its text is not.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import read_only as read_only_filter
from hirag_dist.core.access.labels import HIDDEN, PARTIAL, VISIBLE, Flags
from hirag_dist.core.graph.pagerank import VisibleEdges
from hirag_dist.core.metadata.visibility import LabelStates, Provenance, row_states
from hirag_dist.core.numba_jit import read_only
from hirag_dist.storage.access.label_files import map_mentions, map_statements
from hirag_dist.storage.access.visibility import Visibility
from hirag_dist.storage.access.visible_text import visible_entity_text, visible_relation_text
from hirag_dist.storage.metadata.metadata_files import MetadataFiles
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import AccessFilter


class FilteredRows:
    """Visibility of the rows of an index whose documents have metadata.

    Attributes:
        view_bytes: memory of one view, about.
    """

    def __init__(self, index: MappedIndex, metadata: MetadataFiles, max_tokens: int) -> None:
        """Map what filters need.

        Args:
            index: unfiltered.
            max_tokens: of a description.

        Raises:
            SnapshotCorrupt: a file cannot be read.
        """
        files, walk = index.files, index.walk_graph
        self._mentions = map_mentions(files.serving, "chunks")
        self._statements = map_statements(files.serving, "chunks")
        self._max_tokens = max_tokens
        self._chunk_documents = index.chunk_documents
        self._n_documents = files.documents.n_rows
        self._dim = index.vectors.shape[1]
        arrays: tuple[NDArray[Any], ...] = (
            walk.entity_indptr,
            walk.entity_chunks,
            metadata.entity_provenance,
            metadata.summary_indptr,
            metadata.summary_members,
            index.provenance.relation_indptr,
            index.provenance.relation_chunks,
            metadata.relation_provenance,
            index.communities.indptr,
            index.communities.members,
        )
        self._provenance = Provenance(*(read_only(array) for array in arrays))
        n_chunks, n_entities, n_relations = len(index.chunk_documents), len(index.layers), len(index.ends)
        self._entity_rows, self._relation_rows, self._chunk_rows = (
            np.arange(n, dtype=np.int32) for n in (n_entities, n_relations, n_chunks)
        )
        chunks = self._statements.sets
        self._statement_chunks = np.where(chunks < 0, n_chunks, chunks).astype(np.int32)  # the last: an unknown one
        edges = VisibleEdges.unknown(walk)
        self.view_bytes = 6 * n_entities + n_relations + 4 * n_chunks + 9 * len(index.communities.levels) + 1
        self.view_bytes += edges.degrees.nbytes + edges.bits.nbytes

    def visibility(self, documents: Flags, by_labels: Visibility | None, share: float) -> Visibility:
        """Return the visibility of rows that come from some documents.

        Args:
            documents: (n_documents,) those that are searched.
            by_labels: what the caller may see; None: everything.
            share: of the sources of what is known as a whole only, from which on it is visible.
        """
        matching = np.append(documents, False)[self._chunk_documents]
        visible = matching if by_labels is None else matching & by_labels.chunks
        labels = self._label_states(by_labels)
        states = row_states(self._provenance, labels, visible, matching, share)
        n_sets = 0 if by_labels is None else len(by_labels.access.sets)
        by_chunk = np.append(visible, False)
        access = read_only_filter(
            AccessFilter(
                by_chunk if by_labels is None else np.concatenate([by_labels.access.sets, by_chunk]),
                self._entity_rows,
                states.entities,
                self._relation_rows,
                states.relations,
                *self._parts(by_labels),
                self._statements.rows,
                self._statements.indptr,
                self._statement_chunks + np.int32(n_sets),
                self._statements.numbers,
            )
        )
        by_row = np.where(visible, VISIBLE, HIDDEN).astype(np.uint8)
        partial_entities, relation_states = states.partial_entities, access.relation_states
        return Visibility(
            access=access,
            chunks=visible,
            chunk_access=read_only_filter(access._replace(entity_patterns=self._chunk_rows, entity_states=by_row)),
            communities=states.communities if by_labels is None else states.communities & by_labels.communities,
            partial_entities=lambda rows: partial_entities[rows],
            partial_relations=lambda rows: relation_states[rows] == PARTIAL,
            entity_texts=partial(visible_entity_text, self._mentions, by_chunk, self._max_tokens),
            relation_texts=partial(visible_relation_text, self._statements, by_chunk, self._max_tokens),
            is_by_row=True,
        )

    def _label_states(self, by_labels: Visibility | None) -> LabelStates:
        if by_labels is None:
            rows, states = read_only(np.zeros(0, np.int32)), read_only(np.zeros(0, np.uint8))
            return LabelStates(rows, states, rows, states)
        access = by_labels.access
        return LabelStates(
            access.entity_patterns, access.entity_states, access.relation_patterns, access.relation_states
        )

    def _parts(self, by_labels: Visibility | None) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float32]]:
        """Return the parts of entities by label set: their vectors are those of what the caller may see."""
        if by_labels is None:
            none = np.zeros(0, np.int32)
            return none, none, np.zeros((0, self._dim), np.float32)
        access = by_labels.access
        return access.part_entities, access.part_sets, access.part_vectors
