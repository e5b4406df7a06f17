"""Ways up the hierarchy of an index as a caller may see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.cooperative import Steps
from hirag_dist.core.retrieval.hierarchy import Ancestry, Pairs, climb_steps, path_over, relations_upwards
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import IntVector

_SUMMARY = "summary"  # kind of the relations from members to their summary entity


def ancestry_of(
    view: MappedIndex, rows: Sequence[int], query: NDArray[np.float32]
) -> Steps[tuple[Ancestry, Mapping[int, float]]]:
    """Return the ancestry of some entities, and the similarity of each of them all to the question, step by step.

    Args:
        view: the index as the caller may see it: hidden summary entities and relations are on no way.
        rows: of entities, visible.
        query: vector of the question.
    """
    ancestry = yield from climb_steps(
        rows, view.layers, partial(_summarised, view), partial(view.similarities, query=query)
    )
    reached = np.array(sorted(set(rows).union(*map(ancestry.above, rows))), np.int64)
    return ancestry, dict(zip(reached.tolist(), view.similarities(reached, query).tolist(), strict=True))


def chain_over_steps(view: MappedIndex, rows: Sequence[int], query: NDArray[np.float32]) -> Steps[list[list[int]]]:
    """Return the path of each consecutive pair of entities over their lowest common ancestor; [] where there is none.

    The arguments are those of `ancestry_of`.
    """
    ancestry, closeness = yield from ancestry_of(view, rows, query)
    return [path_over(source, target, ancestry, view.layers, closeness) for source, target in pairwise(rows)]


def _summarised(view: MappedIndex, rows: IntVector) -> Pairs:
    """Return (member, summary entity) of the visible summary relations of entities of one layer."""
    relations = relations_upwards(view.graph, view.parallel, view.walk_graph.layer_ends, rows)
    kinds = view.files.relations.values("kind", relations.tolist())
    chosen = relations[np.array([kind == _SUMMARY for kind in kinds], np.bool_)]
    pairs: Pairs = view.ends[view.visible_relations(chosen)]
    return pairs
