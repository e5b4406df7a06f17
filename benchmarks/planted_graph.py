"""A graph of entities with nested communities, layers of summaries and degrees of a heavy tail, planted all at once.

Nodes are numbered by layer, and within layer 0 so that every community is a run of consecutive nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

LEAF_SIZES = (20, 150)  # entities of a deepest community; their mean is some 50
CHILDREN = 25  # communities in one of the next coarser level, in the mean
COARSEST = 40  # communities of level 0 at most
CLUSTER = 20  # entities that one summary entity stands for
MIN_SUMMARIES = 8  # of a layer
IN_TWO = 0.15  # of entities that belong to two clusters
SAME_NAME = 0.05  # of the summary entities are named like their first member
SCOPES = (0.6, 0.2, 0.12)  # of the edges: within a leaf, its parent, a community of level 0; the rest anywhere
TAIL = 1.4  # exponent of the Pareto law that the likelihood of being related to follows

Nodes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PlantedGraph:
    """The structure of an index, without names and texts.

    Attributes:
        layer_sizes: entities of each layer, from 0 up.
        leaf: (n_nodes,) deepest community of each node.
        groups: one array a level, coarsest first: (n_leaves,) the community of each leaf; the last is the leaves.
        ends: (n_relations, 2) lower and higher node of each distinct extracted relation.
        members: for each layer but the last (node, cluster, best) rows, clusters numbered from 0; cluster c of layer i
            is summarised by node c of layer i + 1.
        namesakes: (n, 2) node and the node of the layer above that has its name.
    """

    layer_sizes: tuple[int, ...]
    leaf: Nodes
    groups: tuple[Nodes, ...]
    ends: Nodes
    members: tuple[Nodes, ...]
    namesakes: Nodes

    @property
    def firsts(self) -> Nodes:
        """Number of the first node of each layer, and at last of all nodes."""
        return np.concatenate([[0], np.cumsum(self.layer_sizes)])


def plant_graph(n_entities: int, n_relations: int, rng: np.random.Generator) -> PlantedGraph:
    """Return a connected graph whose communities are connected too.

    Args:
        n_entities: of all layers together.
        n_relations: extracted ones and those to summaries.

    Raises:
        ValueError: too few entities for a layer of summaries.
    """
    if n_entities < CLUSTER * MIN_SUMMARIES:
        raise ValueError(f"a made-up index has at least {CLUSTER * MIN_SUMMARIES} entities, not {n_entities}")
    sizes = [n_entities]
    while sizes[-1] // CLUSTER >= MIN_SUMMARIES:
        sizes.append(sizes[-1] // CLUSTER)
    sizes[0] -= sum(sizes[1:])
    leaf_bounds = _runs(sizes[0], rng, *LEAF_SIZES)
    leaf = np.repeat(np.arange(len(leaf_bounds) - 1), np.diff(leaf_bounds))
    groups = [np.arange(len(leaf_bounds) - 1)]
    while groups[0][-1] + 1 > COARSEST:
        n_below = int(groups[0][-1]) + 1
        bounds = _runs(n_below, rng, 2, 40 * CHILDREN, CHILDREN)
        groups.insert(0, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))[groups[0]])
    members, leaves, namesakes = [], [leaf], []
    start = 0
    for below, above in pairwise(sizes):
        rows, firsts = _memberships(below, above, rng)
        rows[:, 0] += start
        members.append(rows)
        leaves.append(leaves[-1][firsts])
        named = np.flatnonzero(rng.random(above) < SAME_NAME)
        namesakes.append(np.column_stack([start + firsts[named], start + below + named]))
        start += below
    same = np.concatenate([np.zeros((0, 2), np.int64), *namesakes])
    ends = _edges(leaf, groups, n_relations - sum(map(len, members)) - len(same), rng)
    return PlantedGraph(tuple(sizes), np.concatenate(leaves), tuple(groups), ends, tuple(members), same)


def _runs(n: int, rng: np.random.Generator, least: int, most: int, mean: float = 0.0) -> Nodes:
    """Return the bounds of consecutive runs with sizes of a heavy tail between `least` and `most`."""
    scale = (mean or least * 2.2) / 2
    drawn = np.clip(scale * (1 + rng.pareto(2.0, n // least + 1)), least, most).astype(np.int64)
    bounds = np.concatenate([[0], np.cumsum(drawn)])
    bounds = bounds[bounds <= n - least]
    return np.append(bounds, n) if len(bounds) > 1 or bounds[-1] == 0 else np.array([0, n])


def _memberships(below: int, above: int, rng: np.random.Generator) -> tuple[Nodes, Nodes]:
    """Return (node, cluster, best) of every membership, and the first node of each cluster."""
    ends = np.linspace(0, below, above + 1)
    ends[1:-1] += rng.uniform(-0.4, 0.4, above - 1) * (below / above)
    bounds: Nodes = np.round(ends).astype(np.int64)
    best = np.repeat(np.arange(above), np.diff(bounds))
    beside = np.minimum(best + 1, above - 1)
    two = np.flatnonzero((rng.random(below) < IN_TWO) & (beside != best))
    nodes = np.arange(below)
    first = np.column_stack([nodes, best, np.ones(below, np.int64)])
    return np.concatenate([first, np.column_stack([two, beside[two], np.zeros(len(two), np.int64)])]), bounds[:-1]


def _edges(leaf: Nodes, groups: list[Nodes], n_edges: int, rng: np.random.Generator) -> Nodes:
    n = len(leaf)
    pull = np.concatenate([[0.0], np.cumsum(1 + rng.pareto(TAIL, n))])

    def drawn(low: Nodes, high: Nodes) -> Nodes:
        """Return a node of [low, high) for each pair, likely ones more often."""
        at = pull[low] + rng.random(len(low)) * (pull[high] - pull[low])
        found: Nodes = np.clip(np.searchsorted(pull, at, "right") - 1, low, high - 1)
        return found

    scopes = [_bounds(group[leaf]) for group in (groups[-1], groups[max(len(groups) - 2, 0)], groups[0])]
    scopes.append(np.array([0, n]))
    tree = np.zeros(n, np.int64)  # every node but the first is related to an earlier one, within its leaf if it can be
    for bounds in reversed(scopes):
        start = bounds[np.searchsorted(bounds, np.arange(n), "right") - 1]
        inside = np.flatnonzero(start < np.arange(n))
        tree[inside] = drawn(start[inside], inside)
    trunk = np.sort(tree[1:] * n + np.arange(1, n))
    extra = np.zeros(0, np.int64)
    shares = np.append(SCOPES, 1 - sum(SCOPES))
    while (missing := n_edges - len(trunk) - len(extra)) > 0:
        drawn_now = [extra]
        for bounds, count in zip(scopes, rng.multinomial(int(missing * 1.3) + 16, shares), strict=True):
            tails = np.sort(rng.integers(0, n, count))
            at = np.searchsorted(bounds, tails, "right") - 1
            heads = drawn(bounds[at], bounds[at + 1])
            drawn_now.append(np.minimum(heads, tails) * n + np.maximum(heads, tails))
        extra = _distinct(np.concatenate(drawn_now))
        known = trunk[np.minimum(np.searchsorted(trunk, extra), len(trunk) - 1)] == extra
        extra = extra[(extra // n != extra % n) & ~known]
    kept = rng.permutation(len(extra))[: max(n_edges - len(trunk), 0)]
    codes = np.concatenate([trunk, extra[kept]])
    return np.column_stack([codes // n, codes % n])


def _distinct(codes: Nodes) -> Nodes:
    codes = np.sort(codes)  # many times faster than `np.unique` on millions
    return codes[np.diff(codes, prepend=-1) > 0]


def _bounds(labels: Nodes) -> Nodes:
    """Return where each run of equal labels starts, and the end."""
    return np.append(np.flatnonzero(np.diff(labels, prepend=-1)), len(labels))
