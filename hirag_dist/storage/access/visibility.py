"""Visibility of the rows of an index, by the labels that a caller holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from hirag_dist.core.access.filter import read_only
from hirag_dist.core.access.labels import HIDDEN, PARTIAL, VISIBLE, Flags
from hirag_dist.storage.access.label_files import LabelFiles
from hirag_dist.storage.access.visible_text import TextRows, visible_entity_text, visible_relation_text
from hirag_dist.types import AccessFilter, IntVector


@dataclass(frozen=True)
class Visibility:
    """Visibility of rows in a view.

    Attributes:
        access: filter of rows.
        chunks: (n_chunks,) whether a chunk is visible.
        chunk_access: the filter in the form in which chunk vectors are searched.
        communities: (n_communities,) whether a community's report is visible.
        partial_entities, partial_relations: rows → whether the text of each comes from a part of its mentions.
        entity_texts, relation_texts: such rows → the columns that differ.
        is_by_row: whether the patterns of `access` are rows.
    """

    access: AccessFilter
    chunks: Flags
    chunk_access: AccessFilter
    communities: Flags
    partial_entities: Callable[[IntVector], Flags]
    partial_relations: Callable[[IntVector], Flags]
    entity_texts: Callable[[IntVector], TextRows]
    relation_texts: Callable[[IntVector], TextRows]
    is_by_row: bool = False


def label_visibility(files: LabelFiles, in_reach: Flags) -> Visibility:
    """Return the visibility of rows for a caller who reaches some label sets.

    Args:
        files: of the labels of the index.
        in_reach: (n_sets + 1,) whether the documents of a label set are visible; the last is that of unknown ones.
    """
    access = read_only(
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
    # A chunk is of one document, so its label set is its pattern, and it is never partially visible.
    by_set = np.where(in_reach, VISIBLE, HIDDEN).astype(np.uint8)
    return Visibility(
        access=access,
        chunks=in_reach[files.chunk_sets],
        chunk_access=read_only(access._replace(entity_patterns=files.chunk_sets, entity_states=by_set)),
        communities=files.communities.states(in_reach)[files.communities.of] == VISIBLE,
        partial_entities=lambda rows: access.entity_states[access.entity_patterns[rows]] == PARTIAL,
        partial_relations=lambda rows: access.relation_states[access.relation_patterns[rows]] == PARTIAL,
        entity_texts=partial(visible_entity_text, files.mentions, in_reach, files.max_tokens),
        relation_texts=partial(visible_relation_text, files.statements, in_reach, files.max_tokens),
    )
