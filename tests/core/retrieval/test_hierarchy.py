"""Ways up the hierarchy against the same written as loops over all relations, and what LeanRAG says of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations, pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.core.cooperative import all_at_once
from hirag_dist.core.retrieval.hierarchy import (
    MAX_PARENTS,
    Ancestry,
    climb_steps,
    joining_steps,
    path_over,
    relations_upwards,
)
from hirag_dist.types import IntVector
from tests.core.retrieval.toy_levels import Toy

SEEDS = range(24)


@dataclass
class Layers:
    """A hierarchy: its relations, which of them join a member to its summary entity, and what each row is like."""

    toy: Toy
    sizes: list[int]
    summarises: list[bool]
    hidden: set[int]
    closeness: dict[int, float]
    known: dict[int, set[int]] = field(default_factory=dict)  # of `slow_above`

    @property
    def layers(self) -> NDArray[np.int32]:
        return np.repeat(np.arange(len(self.sizes), dtype=np.int32), self.sizes)

    def pairs_of(self, rows: IntVector) -> NDArray[np.int32]:
        """Visible summary relations, by the function under test."""
        relations = relations_upwards(*self.toy.graph(), np.cumsum(self.sizes), rows)
        kept = [at for at in relations.tolist() if self.summarises[at] and self.toy.relations[at][1] not in self.hidden]
        return np.array([self.toy.relations[at] for at in kept], np.int32).reshape(-1, 2)

    def close(self, rows: IntVector) -> NDArray[np.float32]:
        return np.array([self.closeness[row] for row in rows.tolist()], np.float32)

    def ancestry(self, starts: list[int]) -> Ancestry:
        return all_at_once(climb_steps(starts, self.layers, self.pairs_of, self.close))

    def ways(self, starts: list[int]) -> list[list[int]]:
        return all_at_once(joining_steps(starts, self.ancestry(starts), self.layers, self.closeness))


def random_layers(seed: int, max_parents: int = 6) -> Layers:
    """Up to five layers; relations of equal names next to summary relations, some heavier; ties in closeness."""
    rng = np.random.default_rng(seed)
    sizes = [int(rng.integers(4, 30))]
    while len(sizes) < 5 and sizes[-1] > 1:
        sizes.append(max(sizes[-1] // int(rng.integers(2, 4)), 1))
    ends = np.cumsum([0, *sizes]).tolist()
    relations: list[tuple[int, int]] = []
    summarises: list[bool] = []
    for layer in range(len(sizes) - 1):
        above = range(ends[layer + 1], ends[layer + 2])
        for row in range(ends[layer], ends[layer + 1]):
            n_parents = min(int(rng.integers(0 if max_parents > 1 else 1, max_parents + 1)), len(above))
            parents = rng.choice(above, n_parents, replace=False).tolist()
            named = rng.choice(above, int(rng.integers(0, 2))).tolist()
            relations += [(row, other) for other in (*parents, *named)]
            summarises += [True] * len(parents) + [False] * len(named)
        relations += [tuple(rng.integers(ends[layer], ends[layer + 1], 2).tolist()) for _ in range(3)]
        summarises += [False] * 3
    order = rng.permutation(len(relations)).tolist()
    n_rows = ends[-1]
    weights = rng.integers(1, 4, len(relations)).astype(float).tolist()
    toy = Toy(n_rows, [relations[at] for at in order], weights, [], [], np.zeros((n_rows, 1), np.float32))
    hidden = set(rng.choice(n_rows, n_rows // 8).tolist()) - set(range(sizes[0])) if max_parents > 1 else set()
    closeness = dict(enumerate((rng.integers(0, 4, n_rows) / 4).tolist()))
    return Layers(toy, sizes, [summarises[at] for at in order], hidden, closeness)


def starts_of(made: Layers, seed: int) -> list[int]:
    rng = np.random.default_rng(seed)
    return rng.permutation(made.sizes[0])[: int(rng.integers(1, 9))].tolist()


def slow_parents(made: Layers, row: int) -> list[int]:
    above = {
        b
        for (a, b), of in zip(made.toy.relations, made.summarises, strict=True)
        if a == row and of and b not in made.hidden
    }
    return sorted(above, key=lambda other: (-made.closeness[other], other))[:MAX_PARENTS]


def slow_ways_up(made: Layers, row: int) -> Iterator[list[int]]:
    """Yield every way up from an entity, of any length, the nearest parents first."""
    yield [row]
    for parent in slow_parents(made, row):
        for way in slow_ways_up(made, parent):
            yield [row, *way]


def slow_above(made: Layers, row: int) -> set[int]:
    if row not in made.known:
        made.known[row] = {way[-1] for way in slow_ways_up(made, row)}
    return made.known[row]


def slow_joining(made: Layers, starts: list[int]) -> list[list[int]]:
    groups = [({start}, {start}) for start in starts]  # starts, and entities on their ways
    ways: list[list[int]] = []
    layers = made.layers.tolist()
    for layer in range(len(made.sizes)):
        rows = [row for row in range(len(layers)) if layers[row] == layer]
        while True:
            below = {
                row: [group for group in groups if any(row in slow_above(made, start) for start in group[0])]
                for row in rows
            }
            top = min(rows, key=lambda row: (-len(below[row]), -made.closeness[row], row))
            if len(below[top]) < 2:
                break
            for _, tree in below[top]:
                under = [row for row in tree if top in slow_above(made, row)]
                lower = min(under, key=lambda row: (-layers[row], -made.closeness[row], row))
                if lower != top:
                    ways.append(next(way for way in slow_ways_up(made, lower) if way[-1] == top))
                    tree.update(ways[-1])
            joined = set().union(*(own for own, _ in below[top])), set().union(*(tree for _, tree in below[top]))
            at = groups.index(below[top][0])
            groups = [group for group in groups if group not in below[top]]
            groups.insert(at, joined)
    return ways


@pytest.mark.parametrize("seed", SEEDS)
def test_ways_are_those_of_the_slow_version(seed: int) -> None:
    made = random_layers(seed)
    starts = starts_of(made, seed)
    ancestry = made.ancestry(starts)
    assert {start: ancestry.above(start) for start in starts} == {start: slow_above(made, start) for start in starts}
    assert made.ways(starts) == slow_joining(made, starts)


def lowest(made: Layers, a: int, b: int) -> set[int]:
    """Return the lowest common ancestors of two entities."""
    common = slow_above(made, a) & slow_above(made, b)
    bottom = min((int(made.layers[row]) for row in common), default=-1)
    return {row for row in common if made.layers[row] == bottom}


@pytest.mark.parametrize("seed", SEEDS)
def test_two_entities_are_joined_from_the_layer_of_their_lowest_common_ancestor_on(seed: int) -> None:
    made = random_layers(seed)
    starts = starts_of(made, seed)
    ways = made.ways(starts)
    edges: list[tuple[int, int]] = []
    for way in ways:
        known = {row for edge in edges for row in edge}
        assert not known & set(way[1:-1]), "the ways form a forest"
        assert not made.hidden & set(way)
        edges += pairwise(way)
    assert len(set(edges)) == len(edges) == sum(len(way) - 1 for way in ways)
    for a, b in combinations(starts, 2):
        for top in lowest(made, a, b):
            layer = made.layers[top]
            near = {row: {row} for row in range(len(made.layers))}
            for low, high in edges:
                if made.layers[high] <= layer:
                    both = near[low] | near[high]
                    near |= dict.fromkeys(both, both)
            assert b in near[a]


@pytest.mark.parametrize("seed", SEEDS)
def test_in_a_tree_they_are_the_ways_of_all_pairs_to_their_lowest_common_ancestors(seed: int) -> None:
    """LeanRAG, where an entity has one parent."""
    made = random_layers(seed, max_parents=1)
    starts = starts_of(made, seed)
    expected: set[int] = set()
    for a, b in combinations(starts, 2):
        for top in lowest(made, a, b):
            for start in (a, b):
                (way,) = (way for way in slow_ways_up(made, start) if way[-1] == top)
                expected.update(way)
    assert {row for way in made.ways(starts) for row in way} == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_go_over_a_lowest_common_ancestor(seed: int) -> None:
    """Entities of any layers; an entity is its own ancestor."""
    made = random_layers(seed)
    rng = np.random.default_rng(seed)
    rows = [row for row in rng.permutation(len(made.layers)).tolist() if row not in made.hidden][:6]
    ancestry = made.ancestry(rows)
    for a, b in combinations(rows, 2):
        found = path_over(a, b, ancestry, made.layers, made.closeness)
        tops = lowest(made, a, b)
        if not tops:
            assert found == []
            continue
        top = min(tops, key=lambda row: (-made.closeness[row], row))
        up, down = (next(way for way in slow_ways_up(made, end) if way[-1] == top) for end in (a, b))
        assert found == [*up, *down[-2::-1]]
        assert path_over(a, a, ancestry, made.layers, made.closeness) == [a]


def test_no_entities_no_ways() -> None:
    made = random_layers(1)
    assert made.ways([]) == []
    assert made.ways([0]) == []
    assert relations_upwards(*made.toy.graph(), np.cumsum(made.sizes), np.zeros(0, np.int64)).tolist() == []
