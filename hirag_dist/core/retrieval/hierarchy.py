"""Ways up the hierarchy: the summary entities above some entities, and the lowest common ancestors that join them.

After LeanRAG (arXiv 2508.10391, §3.3), written from its description. There an entity has one parent. Here clusters
overlap, so an entity may have several summary entities above it, and two entities several lowest common ancestors.
Three rules make the ways unique:

  parents   of the summary entities above an entity, the `MAX_PARENTS` nearest to the question count
  joining   from the lowest layer up, the summary entity that is above most groups not joined yet joins them; of
            several the nearest to the question
  ways      a group goes up from its highest entity below that one; at each step to the nearest parent that leads there

Ties go by row. Where each entity has one parent, the entities on all ways are those of LeanRAG: the union, over all
pairs, of the two ways up to the lowest common ancestor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.core.cooperative import Steps
from hirag_dist.core.retrieval.bridge import Parallel, further_relations
from hirag_dist.types import CsrGraph, IntVector

MAX_PARENTS: Final = 4  # of an entity

Pairs = NDArray[np.int32]  # (n, 2) rows of members and of their summary entities
Closeness = Callable[[IntVector], NDArray[np.float32]]


def relations_upwards(graph: CsrGraph, parallel: Parallel, layer_ends: IntVector, rows: IntVector) -> IntVector:
    """Return the relations of some entities of one layer to entities of the next, ascending.

    Args:
        graph: of all layers; rows are in the order of layers.
        parallel: the further relations of pairs that have several: one of equal names may be heavier than the summary
            relation of the pair.
        layer_ends: (n_layers,) end row of each layer.
        rows: (n,) of one layer.
    """
    layer = int(np.searchsorted(layer_ends, rows[0], "right")) if len(rows) else len(layer_ends)
    if layer + 1 >= len(layer_ends):
        return np.zeros(0, np.int64)
    low, high = int(layer_ends[layer]), int(layer_ends[layer + 1])
    bounds = []
    for row in rows.tolist():  # neighbours ascend, so those of a layer are together
        first, last = int(graph.indptr[row]), int(graph.indptr[row + 1])
        bounds.append(first + np.searchsorted(graph.indices[first:last], (low, high)))
    _, entries = spans(*np.array(bounds, np.int64).T)
    heads = graph.relation_rows[entries]
    return np.unique(np.concatenate([heads, further_relations(parallel, heads)])).astype(np.int64)


class Ancestry:
    """The entities above some entities, by the first rule.

    Attributes:
        parents: entity → its parents, the nearest to the question first; of all entities that were reached.
    """

    def __init__(self, parents: Mapping[int, Sequence[int]]) -> None:
        """Prepare; `parents` has every entity that is reached from another in it, or those that have parents."""
        self.parents = parents
        self._above: dict[int, frozenset[int]] = {}

    def above(self, row: int) -> frozenset[int]:
        """Return an entity and all its ancestors."""
        if row not in self._above:
            own = frozenset((row,))
            self._above[row] = own.union(*(self.above(parent) for parent in self.parents.get(row, ())))
        return self._above[row]

    def way(self, row: int, ancestor: int) -> list[int]:
        """Return the way up from an entity to one of its ancestors, both included (third rule)."""
        way = [row]
        while way[-1] != ancestor:
            way.append(next(parent for parent in self.parents[way[-1]] if ancestor in self.above(parent)))
        return way


def climb_steps(
    rows: Iterable[int], layers: NDArray[np.int32], pairs_of: Callable[[IntVector], Pairs], closeness: Closeness
) -> Steps[Ancestry]:
    """Return the ancestry of some entities, a layer at a step.

    Args:
        rows: of any layers, visible to the caller.
        layers: (n_entities,) layer of each row.
        pairs_of: rows of one layer → (member, summary entity) of their visible summary relations.
        closeness: rows → similarity of each to the question.
    """
    waiting: dict[int, set[int]] = {}
    for row in rows:
        waiting.setdefault(int(layers[row]), set()).add(row)
    parents: dict[int, list[int]] = {}
    while waiting:
        layer = min(waiting)
        members, above = pairs_of(np.array(sorted(waiting.pop(layer)), np.int64)).T
        scores = closeness(above.astype(np.int64))
        order = np.lexsort((above, -scores))
        for member, parent in zip(members[order].tolist(), above[order].tolist(), strict=True):
            own = parents.setdefault(member, [])
            if len(own) < MAX_PARENTS and parent not in own:
                own.append(parent)
                waiting.setdefault(layer + 1, set()).add(parent)
        yield
    return Ancestry(parents)


def joining_steps(
    starts: Sequence[int], ancestry: Ancestry, layers: NDArray[np.int32], closeness: Mapping[int, float]
) -> Steps[list[list[int]]]:
    """Return the ways up from some entities to the summary entities that join them, a summary entity at a step.

    Two entities are in one group from the layer of their lowest common ancestor on. Groups without a common ancestor
    stay apart.

    Args:
        starts: entities, each once.
        ancestry: of the starts.
        layers: (n_entities,) layer of each row.
        closeness: similarity of each ancestor to the question.

    Returns:
        Rows of each way, from the lower end to the summary entity that joins, in the order of joining. They form a
        forest: what a way shares with earlier ones are its ends at most.
    """
    group = {start: at for at, start in enumerate(starts)}  # start → group
    trees: dict[int, set[int]] = {at: {start} for at, start in enumerate(starts)}  # group → entities on its ways
    under: dict[int, list[int]] = {}  # entity → starts below it, or itself
    for start in starts:
        for row in ancestry.above(start):
            under.setdefault(row, []).append(start)
    ways: list[list[int]] = []
    shared = [row for row, below in under.items() if len(below) > 1]
    for layer in sorted({int(layers[row]) for row in shared}):
        candidates = [row for row in shared if layers[row] == layer]
        while candidates:
            joins = {row: {group[start] for start in under[row]} for row in candidates}
            candidates = [row for row in candidates if len(joins[row]) > 1]
            if not candidates:
                break
            top = min(candidates, key=lambda row: (-len(joins[row]), -closeness[row], row))
            joined = sorted(joins[top])
            for at in joined:
                below = (row for row in trees[at] if top in ancestry.above(row))
                lower = min(below, key=lambda row: (-int(layers[row]), -closeness[row], row))
                if lower != top:
                    ways.append(ancestry.way(lower, top))
                    trees[at].update(ways[-1])
            first, *others = joined
            for at in others:
                trees[first] |= trees.pop(at)
            group |= {start: first for start, at in group.items() if at in joined}
            yield
    return ways


def path_over(
    source: int, target: int, ancestry: Ancestry, layers: NDArray[np.int32], closeness: Mapping[int, float]
) -> list[int]:
    """Return the path between two entities up to a lowest common ancestor and down again; [] where there is none.

    Of several lowest common ancestors it takes the nearest to the question, then the first by row. An entity counts
    among its own ancestors, so the path to an ancestor goes straight up.
    """
    common = ancestry.above(source) & ancestry.above(target)
    if not common:
        return []
    top = min(common, key=lambda row: (int(layers[row]), -closeness[row], row))
    return [*ancestry.way(source, top), *ancestry.way(target, top)[-2::-1]]
