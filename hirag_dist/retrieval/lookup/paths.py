"""A shortest path between two entities, and the relations on it (Eq. 15-16)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.retrieval.deadline import CooperativeDeadline
from hirag_dist.retrieval.lookup.names import find_entity
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import CsrGraph, PathDetails


async def path_details(
    view: MappedIndex | None,
    tables: LookupTables,
    finder: PathFinder,
    source: str,
    target: str,
    deadline: CooperativeDeadline,
) -> PathDetails:
    """Return a path between two entities, without entities where the visible graph does not connect them.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        tables: of the index.
        finder: of paths in the index; the calling thread's.
        source, target: ids or names.
        deadline: of the request.

    Raises:
        NotFound: the caller may see no such entity.
        DeadlineExceeded: the deadline passed.
    """
    (seen, first), (_, last) = await deadline.run_in_thread(
        lambda: (find_entity(view, tables, source), find_entity(view, tables, target))
    )
    components = seen.components
    if components is None:
        components = await deadline.run_in_thread(seen.connect)
    (path,) = await deadline.run(finder.chain_steps([first, last], seen.access, components))
    relations = relations_between(seen.graph, path)
    named = seen.named({first, last, *path})
    return PathDetails(
        path=seen.paths([(first, last)], [path], named)[0],
        entities=seen.entities([(row, None) for row in path], named),
        triples=seen.triples([(row, 0.0) for row in relations], named),
    )


def relations_between(graph: CsrGraph, path: Sequence[int]) -> list[int]:
    """Return the relation that the graph has for each two consecutive entities of a path."""
    found = []
    for one, other in pairwise(path):
        first, last = graph.indptr[one], graph.indptr[one + 1]
        found.append(int(graph.relation_rows[first + np.searchsorted(graph.indices[first:last], other)]))
    return found
